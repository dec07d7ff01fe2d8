#!/usr/bin/env python3
"""Makes resnet.bin, inception.bin and pixels.bin, what PyTorch computes for the networks of tests/train/test_reference.c.

A residual network of two blocks, and one with branches that are joined, local norms, poolings that count up and dropout, whose
masks are computed here as src/train/layers/dropout.h has them, and one with a sigmoid that labels pixels, of which some have no
label, with an auxiliary head of squared errors. Each is trained for a few steps by SGD with momentum, weight
decay and label smoothing. All in float64, stored as float32, in the layouts of src/train/graph/network.h: images [image][row]
[column][channel], convolution weights [filter][row][column][channel].

The file: "ALNREF1\n", then records of a name (32 bytes, padded with zeros), a number of elements (uint64) and so many
float32, all little-endian. Made with PyTorch 1.13 by: make_reference.py resnet resnet.bin; make_reference.py inception inception.bin;
make_reference.py pixels pixels.bin
"""
import struct
import sys

import torch
from torch import nn
from torch.nn import functional as F

STEPS, BATCH, CLASSES, HEIGHT, WIDTH = 4, 6, 5, 17, 15
RATE, MOMENTUM, DECAY, SMOOTHING = 0.1, 0.9, 1e-2, 0.1


class Resnet(nn.Module):
    """Layers by the names of the C test, in the order of its operations."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleDict({
            "stem_conv": nn.Conv2d(3, 8, 7, 2, 3, bias=False), "stem_norm": nn.BatchNorm2d(8),
            "a_conv1": nn.Conv2d(8, 8, 3, 1, 1, bias=False), "a_norm1": nn.BatchNorm2d(8),
            "a_conv2": nn.Conv2d(8, 8, 3, 1, 1, bias=False), "a_norm2": nn.BatchNorm2d(8),
            "b_conv1": nn.Conv2d(8, 16, 3, 2, 1, bias=False), "b_norm1": nn.BatchNorm2d(16),
            "b_conv2": nn.Conv2d(16, 16, 3, 1, 1, bias=False),
            "b_conv0": nn.Conv2d(8, 16, 1, 2, 0, bias=False), "b_norm0": nn.BatchNorm2d(16),
            "b_norm2": nn.BatchNorm2d(16),
            "c_conv": nn.Conv2d(16, 12, 1, 1, 0, bias=True), "d_dense": nn.Linear(12, CLASSES),
        })

    def forward(self, x, step):
        l = self.layers
        x = F.relu(l["stem_norm"](l["stem_conv"](x)))
        x = F.max_pool2d(x, 3, 2, 1)
        y = F.relu(l["a_norm1"](l["a_conv1"](x)))
        x = F.relu(l["a_norm2"](l["a_conv2"](y)) + x)
        y = F.relu(l["b_norm1"](l["b_conv1"](x)))
        x = F.relu(l["b_norm2"](l["b_conv2"](y)) + l["b_norm0"](l["b_conv0"](x)))
        x = F.avg_pool2d(x, 2, 1, 1, count_include_pad=False)
        x = F.relu(l["c_conv"](x))
        return l["d_dense"](x.mean((2, 3)))


def random_next(state):
    """The number behind a state of SplitMix64."""
    z = (state + 0x9e3779b97f4a7c15) % 2**64
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9 % 2**64
    z = (z ^ z >> 27) * 0x94d049bb133111eb % 2**64
    return z ^ z >> 31


def random_stream(seed, index):
    return random_next(random_next(seed) ^ index)


def dropped(x, node, step, rate):
    """Dropout of operation `node`, of seed 0 and images from 0 on."""
    zeros = int(rate * 65536 + 0.5)
    images, channels, rows, columns = x.shape
    factors = torch.zeros(x.shape, dtype=x.dtype)
    for n in range(images):
        image = random_stream(random_stream(random_stream(0, node), step), n)
        for pixel in range(rows * columns):
            for c in range(channels):
                group = pixel * ((channels + 3) // 4) + c // 4
                number = random_next((image + group * 0x9e3779b97f4a7c15) % 2**64) >> c % 4 * 16 & 0xffff
                factors[n, c, pixel // columns, pixel % columns] = 0 if number < zeros else 65536 / (65536 - zeros)
    return x * factors


class Inception(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleDict({
            "stem_conv": nn.Conv2d(3, 8, 5, 2, 2), "a_conv": nn.Conv2d(8, 5, 1), "b_reduce": nn.Conv2d(8, 6, 1),
            "b_conv": nn.Conv2d(6, 16, 3, 1, 1), "c_conv": nn.Conv2d(8, 3, 1), "d_dense1": nn.Linear(24 * 4, 20),
            "d_dense2": nn.Linear(20, CLASSES),
        })

    def forward(self, x, step):
        l = self.layers
        x = F.max_pool2d(F.relu(l["stem_conv"](x)), 3, 2, ceil_mode=True)
        x = F.local_response_norm(x, 5, 0.8, 0.75, 1)
        a = F.relu(l["a_conv"](x))
        b = F.relu(l["b_conv"](F.relu(l["b_reduce"](x))))
        c = F.relu(l["c_conv"](F.max_pool2d(x, 3, 1, 1)))
        x = F.avg_pool2d(torch.cat((a, b, c), 1), 3, 2, ceil_mode=True, count_include_pad=False)
        x = dropped(F.local_response_norm(x, 3, 0.8, 0.75, 1), 16, step, 0.25)
        x = F.relu(l["d_dense1"](x.permute(0, 2, 3, 1).flatten(1)))
        return l["d_dense2"](dropped(x[:, :, None, None], 19, step, 0.5)[:, :, 0, 0])


class Pixels(nn.Module):
    sides = (17, 13)

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleDict({
            "stem_conv": nn.Conv2d(3, 8, 5, 2, 2, bias=False), "stem_norm": nn.BatchNorm2d(8), "a_conv": nn.Conv2d(8, 6, 3, 2, 1),
            "b_conv": nn.Conv2d(6, CLASSES, 1), "c_conv": nn.Conv2d(6, CLASSES, 1),
        })

    def forward(self, x, step):
        l = self.layers
        x = torch.sigmoid(l["a_conv"](F.relu(l["stem_norm"](l["stem_conv"](x)))))
        heads = (F.interpolate(l[name](x), scale_factor=4, mode="nearest")[:, :, :-3, :-3] for name in ("c_conv", "b_conv"))
        self.auxiliary, logits = heads
        return logits

    def loss(self, labels):
        """Of the auxiliary head, with its weight."""
        targets = F.one_hot(labels.clamp(0), CLASSES).permute(0, 3, 1, 2)
        return 0.5 * (((self.auxiliary - targets) ** 2).mean(1) * (labels >= 0)).sum() / labels.numel()


def plain(tensor):
    """A weight's numbers in our layout."""
    tensor = tensor.detach()
    return (tensor.permute(0, 2, 3, 1) if tensor.dim() == 4 else tensor).reshape(-1)


def write(out, name, tensor):
    numbers = tensor.detach().reshape(-1).to(torch.float32).tolist()
    out.write(struct.pack("<32sQ%df" % len(numbers), name.encode(), len(numbers), *numbers))


def write_parameters(out, prefix, network, of):
    for name, parameter in network.layers.named_parameters():
        write(out, prefix + name, plain(of(parameter)))


def initialize(network):
    """Values that float32 holds exactly, none of them special."""
    for name, parameter in network.layers.named_parameters():
        normal = torch.randn(parameter.shape, dtype=torch.float64)
        fan = parameter[0].numel()
        value = normal * (2 / fan) ** 0.5 if parameter.dim() > 1 else 0.2 * normal
        if "norm" in name and name.endswith("weight"):
            value = value + 1
        parameter.data = value.to(torch.float32).to(torch.float64)


def main():
    torch.manual_seed(20)
    network = {"resnet": Resnet, "inception": Inception, "pixels": Pixels}[sys.argv[1]]().double()
    initialize(network)
    parameters = list(network.layers.named_parameters())
    decayed = [p for n, p in parameters if p.dim() > 1]
    others = [p for n, p in parameters if p.dim() == 1]
    optimizer = torch.optim.SGD([{"params": decayed, "weight_decay": DECAY}, {"params": others}],
                                lr=RATE, momentum=MOMENTUM)
    with open(sys.argv[2], "wb") as out:
        out.write(b"ALNREF1\n")
        write_parameters(out, "0.", network, lambda p: p)
        for step in range(1, STEPS + 1):
            images = torch.randn(BATCH, 3, HEIGHT, WIDTH).to(torch.float64)
            labels = torch.randint(CLASSES, (BATCH, *getattr(network, "sides", ())))
            if labels.dim() > 1:
                labels[torch.rand(labels.shape) < 0.2] = -1
            optimizer.zero_grad()
            logits = network(images, step)
            total = F.cross_entropy(logits, labels, label_smoothing=SMOOTHING, ignore_index=-1, reduction="sum")
            loss = total / (labels >= 0).sum()
            (total / labels.numel() + (network.loss(labels) if labels.dim() > 1 else 0)).backward()
            write(out, "%d.images" % step, images.permute(0, 2, 3, 1))
            write(out, "%d.labels" % step, labels)
            write(out, "%d.log" % step, plain(F.log_softmax(logits, 1)))
            write(out, "%d.loss" % step, loss)
            write_parameters(out, "%d.gradient." % step, network, lambda p: p.grad)
            optimizer.step()
            write_parameters(out, "%d." % step, network, lambda p: p)
        for name, layer in network.layers.items():
            if "norm" in name:
                write(out, "running." + name, torch.cat([layer.running_mean, layer.running_var]))


if __name__ == "__main__":
    main()
