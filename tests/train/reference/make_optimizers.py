#!/usr/bin/env python3
"""Makes optimizers.txt, what PyTorch's optimizers do to 24 weights and 4 biases, for tests/train/test_optimizer.c.

Parameters and gradients are multiples of powers of two by formulas that the test has, too. Weights decay, biases do
not. All in float64. The file: a line that says what made it; for each case a line "case NAME RATE MOMENTUM BETA1 BETA2
EPSILON DECAY CLIP LINES", then so many lines of a step and the 28 parameters after it.

Usage: make_optimizers.py optimizers.txt
"""
import sys

import torch

WEIGHTS, BIASES, STEPS = 24, 4, (1, 2, 5, 20)

# Optimizer, and PyTorch's arguments; the rate is the same in all steps.
OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "nag": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.01, "eps": 1e-10}),
    "adadelta": (torch.optim.Adadelta, {"lr": 1.0, "rho": 0.9, "eps": 1e-6}),
    "rmsprop": (torch.optim.RMSprop, {"lr": 0.001, "alpha": 0.99, "eps": 1e-8}),
    "adam": (torch.optim.Adam, {"lr": 0.001, "betas": (0.9, 0.999), "eps": 1e-8}),
}


def numbers(factor, add, modulus, unit):
    values = [((i * factor + add) % modulus - modulus // 2) * unit for i in range(WEIGHTS + BIASES)]
    values = torch.tensor(values, dtype=torch.float64)
    return values[:WEIGHTS].clone(), values[WEIGHTS:].clone()


def run(out, name, decay, clip, epsilon=None):
    make, arguments = OPTIMIZERS[name]
    if epsilon:
        arguments = dict(arguments, eps=epsilon)
    parameters = [torch.nn.Parameter(p) for p in numbers(37, 11, 101, 1 / 64)]
    groups = [{"params": parameters[:1], "weight_decay": decay}, {"params": parameters[1:], "weight_decay": 0.0}]
    optimizer = make(groups, **arguments)
    betas = arguments.get("betas", (0.0, arguments.get("rho", arguments.get("alpha", 0.0))))
    out.write("case %s %r %r %r %r %r %r %r %d\n" % (
        name, arguments["lr"], arguments.get("momentum", 0.0), betas[0], betas[1], arguments.get("eps", 0.0), decay,
        clip, len(STEPS)))
    for step in range(1, STEPS[-1] + 1):
        for parameter, gradient in zip(parameters, numbers(53, 29 * step, 97, 1 / 128)):
            parameter.grad = gradient
        if clip:
            torch.nn.utils.clip_grad_norm_(parameters, clip)
        optimizer.step()
        if step in STEPS:
            values = torch.cat([p.detach() for p in parameters]).tolist()
            out.write("%d %s\n" % (step, " ".join("%.12g" % value for value in values)))


def main():
    with open(sys.argv[1], "w") as out:
        out.write("# PyTorch %s, float64, by make_optimizers.py\n" % torch.__version__)
        for name in OPTIMIZERS:
            for decay, clip in ((0.0, 0.0), (0.01, 0.0), (0.01, 0.75)):
                run(out, name, decay, clip)
            if "eps" in OPTIMIZERS[name][1]:
                run(out, name, 0.01, 0.0, epsilon=0.01)


if __name__ == "__main__":
    main()
