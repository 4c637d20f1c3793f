"""The nineteen transposed 3-D convolutions of KernelBench level 2, at its sizes: what follows each convolution, in
ops of voxgrad and PyTorch (common/program.py)."""

from dataclasses import dataclass, replace
from typing import Callable

import torch

from common.pytorch_ops import PYTORCH


@dataclass
class Problem:
    number: int
    batch: int
    c_in: int
    c_out: int
    input: tuple
    tail: Callable  # of the ops, the convolution's output and the further operands
    extra: Callable = lambda c: []  # shapes of the further operands, given c_out
    kernel: int = 3
    stride: int = 2
    padding: int = 1
    output_padding: int = 0
    bias: bool = True
    running: bool = False  # the last operands are the running mean and variance of a batch norm

    def small(self):
        """A tiny version. Problems that normalise along W keep that size."""
        width = self.input[2] if self.number in (3, 34) else 8
        return replace(self, batch=2, c_in=max(1, self.c_in // 4), c_out=max(4, self.c_out // 4), input=(4, 4, width))

    def output(self):
        """The sizes of the convolution's output."""
        sizes = [i // 2 for i in self.input] if self.number == 38 else self.input
        return [(i - 1) * self.stride - 2 * self.padding + self.kernel + self.output_padding for i in sizes]

    def operands(self, device, dtype):
        """Input, weight, bias and the further operands, distributed as in KernelBench."""
        taps = self.kernel**3
        bound = (self.c_out * taps) ** -0.5
        values = [torch.rand(self.batch, self.c_in, *self.input),
                  torch.empty(self.c_in, self.c_out, *(self.kernel,) * 3).uniform_(-bound, bound)]
        if self.bias:
            values.append(torch.empty(self.c_out).uniform_(-bound, bound))
        if self.number == 26:
            values.append(torch.rand(self.batch, self.c_out, *self.output()))
        values += [torch.randn(shape) for shape in self.extra(self.c_out)]
        values = [v.to(device, dtype).requires_grad_() for v in values]
        running = [torch.zeros(self.c_out), torch.ones(self.c_out)] if self.running else []
        return values + [v.to(device, dtype) for v in running]

    def function(self, ops, x, weight, *others):
        """The whole problem."""
        x = ops.avg_pool3d(x, 2) if self.number == 38 else x
        bias, others = (others[0], others[1:]) if self.bias else (None, others)
        y = ops.conv_transpose3d(x, weight, bias, self.stride, self.padding, self.output_padding)
        if self.number == 38:
            others = [*others, (self.batch, self.c_out, *self.output())]
        return self.tail(ops, y, *others)

    def pytorch(self, *operands):
        return self.function(PYTORCH, *operands)


INFINITY = float("inf")


def scale(c):
    return [(c, 1, 1, 1)]


def affine(c):
    return [(c,), (c,)]


def global_mean(ops, x):
    return ops.mean(x, (2, 3, 4), True)


def batch_norm(ops, y, weight, bias, mean, var):
    return ops.batch_norm(y, mean, var, weight, bias, True)


def less_mean(ops, y, *norm):
    z = batch_norm(ops, y, *norm)
    return z - global_mean(ops, z)


def residual(ops, y, bias):
    constant = ops.detach(y)
    return (y + bias + constant) * constant + constant


def swish(ops, y, a):
    z = y + a
    return z * ops.hardswish(z)


def softmax_of_cells(ops, y, scale, shape):
    """`shape` is that of y."""
    rows = ops.reshape(ops.clamp(y, 0, 1), (*shape[:2], -1))
    return ops.reshape(ops.softmax(rows, 2), shape) * scale


def clamped_swish(ops, y, bias):
    z = ops.logsumexp(y, (1,), True)
    return ops.clamp(z * ops.sigmoid(z + 3) / 6 - bias, -1, 1)


def layer_norm(ops, y, weight, bias):
    return ops.layer_norm(y, tuple(weight.shape), weight, bias, 1e-5)


def subtracted(ops, y, s):
    return ops.max(ops.silu(ops.softmax(ops.max_pool3d(y, 2), 1) - ops.reshape(s, (-1, 1, 1, 1))), (1,), False)


PROBLEMS = [
    Problem(3, 32, 32, 64, (16, 32, 32),
            lambda ops, y, s, w, b: ops.gelu(ops.avg_pool3d(layer_norm(ops, y + s, w, b), 2)),
            lambda c: [(), (64,), (64,)], output_padding=1),
    Problem(13, 16, 16, 64, (32, 128, 128),
            lambda ops, y, b: ops.tanh(ops.softmax(ops.mean(y, (2,), True) + b, 1)) * 2, scale, stride=1),
    Problem(15, 16, 16, 32, (16, 32, 32), less_mean, affine, running=True),
    Problem(20, 16, 32, 64, (16, 32, 32), residual, scale, output_padding=1),
    Problem(26, 128, 32, 64, (16, 16, 16), swish, output_padding=1),
    Problem(34, 32, 32, 64, (16, 32, 32), lambda ops, y, w, b: ops.gelu(layer_norm(ops, y, w, b)) * 1.0,
            lambda c: [(64,), (64,)], kernel=4),
    Problem(38, 32, 32, 64, (32, 64, 64), softmax_of_cells, scale, output_padding=1),
    Problem(49, 16, 32, 64, (16, 32, 32), lambda ops, y: ops.sigmoid(ops.softmax(y, 1)), output_padding=1),
    Problem(50, 128, 3, 16, (16, 32, 32), lambda ops, y, s, b, t: (ops.avg_pool3d(y * s, 2) + b) * t,
            lambda c: [(), (c, 1, 1, 1), ()]),
    Problem(58, 128, 3, 16, (16, 32, 32), clamped_swish, lambda c: [(1, 1, 1, 1)]),
    Problem(60, 128, 3, 16, (16, 32, 32),
            lambda ops, y, w, b: ops.hardswish(ops.group_norm(ops.silu(y), 4, w, b, 1e-5)), affine),
    Problem(61, 16, 64, 128, (32, 32, 32), lambda ops, y, w, b: ops.group_norm(ops.relu(y), 8, w, b, 1e-5), affine,
            stride=1, padding=0, bias=False),
    Problem(72, 64, 3, 16, (32, 32, 32),
            lambda ops, y, *norm: ops.avg_pool3d(ops.avg_pool3d(batch_norm(ops, y, *norm), 2), 2), affine,
            running=True),
    Problem(74, 16, 16, 32, (16, 32, 32),
            lambda ops, y, m: ops.max_pool3d(ops.leaky_relu(ops.leaky_relu(y, 0.2) * m, 0.2), 2), scale,
            output_padding=1),
    Problem(77, 16, 64, 128, (16, 32, 32), lambda ops, y, *norm: global_mean(ops, batch_norm(ops, y * 2, *norm)),
            affine, kernel=5, stride=1, padding=0, running=True),
    Problem(78, 16, 32, 64, (32, 32, 32),
            lambda ops, y: ops.sum(ops.max_pool3d(ops.max_pool3d(y, 2), 3), (1,), True), kernel=5, padding=2),
    Problem(89, 128, 3, 16, (16, 32, 32), subtracted, lambda c: [(c,)], output_padding=1),
    Problem(96, 128, 3, 16, (16, 32, 32),
            lambda ops, y: ops.clamp(global_mean(ops, ops.max_pool3d(y * 0.5, 2)), 0, 1)),
    Problem(100, 16, 64, 128, (24, 48, 48), lambda ops, y: ops.clamp(y, -1, INFINITY) / 2),
]
