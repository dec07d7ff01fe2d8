"""The networks of alnico-train in PyTorch, layer by layer, for benchmarks/torch_step.py. MODELS names for each its class, the
side and channels of its images, and its classes; those of LABEL_PIXELS have a label for each pixel."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Bottleneck(nn.Module):
    def __init__(self, inputs, filters, stride, project):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, filters, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(filters)
        self.conv2 = nn.Conv2d(filters, filters, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(filters)
        self.conv3 = nn.Conv2d(filters, 4 * filters, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * filters)
        nn.init.zeros_(self.bn3.weight)
        self.shortcut = None
        if project:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, 4 * filters, 1, stride, bias=False), nn.BatchNorm2d(4 * filters))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = F.relu(self.bn2(self.conv2(y)), inplace=True)
        y = self.bn3(self.conv3(y))
        return F.relu(y + (x if self.shortcut is None else self.shortcut(x)), inplace=True)


class ResNet50(nn.Module):
    def __init__(self, classes=1000):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64),
                                  nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
        blocks, inputs = [], 64
        for stage, count in enumerate((3, 4, 6, 3)):
            for i in range(count):
                blocks.append(Bottleneck(inputs, 64 << stage, 2 if stage and not i else 1, not i))
                inputs = 256 << stage
        self.blocks = nn.Sequential(*blocks)
        self.dense = nn.Linear(inputs, classes)

    def forward(self, x):
        return self.dense(self.blocks(self.stem(x)).mean((2, 3)))


def convolution(inputs, filters, window, stride=1, pad=0):
    return nn.Sequential(nn.Conv2d(inputs, filters, window, stride, pad), nn.ReLU(inplace=True))


def mnist(classes=10):
    return nn.Sequential(convolution(1, 32, 3), convolution(32, 32, 3), nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten(),
                         nn.Linear(32 * 12 * 12, 256), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(256, classes))


def alexnet_plan(convolutions, inputs, dense, classes):
    """Of filters, window, stride and pad of five convolutions; `inputs` of the first dense layer."""
    layers, channels = [], 3
    for i, (filters, window, stride, pad) in enumerate(convolutions):
        layers.append(convolution(channels, filters, window, stride, pad))
        layers += [nn.LocalResponseNorm(5, 1e-4, 0.75, 2)] if i < 2 else []
        layers += [nn.MaxPool2d(3, 2)] if i < 2 or i == 4 else []
        channels = filters
    layers.append(nn.Flatten())
    for width in (inputs, dense):
        layers += [nn.Linear(width, dense), nn.ReLU(inplace=True), nn.Dropout(0.5)]
    return nn.Sequential(*layers, nn.Linear(dense, classes))


def alexnet(classes=1000):
    return alexnet_plan(((96, 11, 4, 0), (256, 5, 1, 2), (384, 3, 1, 1), (384, 3, 1, 1), (256, 3, 1, 1)), 9216, 4096, classes)


def alexnet_cifar(classes=10):
    return alexnet_plan(((64, 5, 1, 2), (64, 5, 1, 2), (128, 3, 1, 1), (128, 3, 1, 1), (128, 3, 1, 1)), 1152, 512, classes)


class Inception(nn.Module):
    def __init__(self, inputs, one, reduce3, three, reduce5, five, pool):
        super().__init__()
        self.one = convolution(inputs, one, 1)
        self.three = nn.Sequential(convolution(inputs, reduce3, 1), convolution(reduce3, three, 3, 1, 1))
        self.five = nn.Sequential(convolution(inputs, reduce5, 1), convolution(reduce5, five, 5, 1, 2))
        self.pool = nn.Sequential(nn.MaxPool2d(3, 1, 1), convolution(inputs, pool, 1))

    def forward(self, x):
        return torch.cat((self.one(x), self.three(x), self.five(x), self.pool(x)), 1)


class GoogLeNet(nn.Module):
    """Without heads the logits; with them the logits and those of the two heads."""

    def __init__(self, heads, classes=1000):
        super().__init__()
        layers = [convolution(3, 64, 7, 2, 3), nn.MaxPool2d(3, 2, ceil_mode=True), nn.LocalResponseNorm(5, 1e-4, 0.75, 1),
                  convolution(64, 64, 1), convolution(64, 192, 3, 1, 1), nn.LocalResponseNorm(5, 1e-4, 0.75, 1),
                  nn.MaxPool2d(3, 2, ceil_mode=True)]
        inputs = 192
        for filters in ((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64), None, (192, 96, 208, 16, 48, 64),
                        (160, 112, 224, 24, 64, 64), (128, 128, 256, 24, 64, 64), (112, 144, 288, 32, 64, 64),
                        (256, 160, 320, 32, 128, 128), None, (256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)):
            layers.append(Inception(inputs, *filters) if filters else nn.MaxPool2d(3, 2, ceil_mode=True))
            inputs = filters[0] + filters[2] + filters[4] + filters[5] if filters else inputs
        self.parts = nn.ModuleList((nn.Sequential(*layers[:11]), nn.Sequential(*layers[11:14]), nn.Sequential(*layers[14:])))
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.4), nn.Linear(inputs, classes))
        self.heads = nn.ModuleList(self.auxiliary(width, classes) for width in (512, 528)) if heads else []

    @staticmethod
    def auxiliary(inputs, classes):
        return nn.Sequential(nn.AvgPool2d(5, 3), convolution(inputs, 128, 1), nn.Flatten(), nn.Linear(2048, 1024),
                             nn.ReLU(inplace=True), nn.Dropout(0.7), nn.Linear(1024, classes))

    def forward(self, x):
        outputs = []
        for i, part in enumerate(self.parts):
            x = part(x)
            if i < len(self.heads):
                outputs.append(self.heads[i](x))
        return (self.head(x), *outputs) if outputs else self.head(x)


class Mesh(nn.Module):
    """Six blocks of so many convolutions; the classes of a grid of one in 64 pixels a side become those of the pixels."""

    def __init__(self, convolutions, classes=2):
        super().__init__()
        layers, inputs = [], 18
        for block, filters in enumerate((128, 160, 192, 224, 256, 256)):
            for i in range(convolutions):
                window = 3 if block or i else 5
                layers += [nn.Conv2d(inputs, filters, window, 1 if i else 2, window // 2, bias=False), nn.BatchNorm2d(filters),
                           nn.ReLU(inplace=True)]
                inputs = filters
        self.body = nn.Sequential(*layers)
        self.head = nn.Conv2d(inputs, classes, 1)

    def forward(self, x):
        y = F.interpolate(self.head(self.body(x)), scale_factor=64, mode="nearest")
        return y[:, :, :x.shape[2], :x.shape[3]]


def neuron():
    return nn.Sequential(nn.Flatten(), nn.Linear(1, 1), nn.Sigmoid())


def loss(outputs, labels):
    """Of a network's logits, or of one neuron's numbers by their squared error; auxiliary heads count 0.3."""
    logits = (outputs,) if torch.is_tensor(outputs) else outputs
    if logits[0].shape[1] == 1:
        return F.mse_loss(logits[0].float().flatten(), labels.float())
    return sum(F.cross_entropy(one.float(), labels) * (0.3 if i else 1) for i, one in enumerate(logits))


MODELS = {"resnet50": (ResNet50, 224, 3, 1000), "alexnet": (alexnet, 227, 3, 1000), "googlenet": (lambda: GoogLeNet(False), 224, 3, 1000),
          "googlenet-aux": (lambda: GoogLeNet(True), 224, 3, 1000), "mnist": (mnist, 28, 1, 10), "alexnet-cifar": (alexnet_cifar, 32, 3, 10),
          "mesh1k": (lambda: Mesh(3), 1024, 18, 2), "mesh2k": (lambda: Mesh(5), 2048, 18, 2), "neuron": (neuron, 1, 1, 2)}
LABEL_PIXELS = ("mesh1k", "mesh2k")
