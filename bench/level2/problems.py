"""The nineteen transposed 3-D convolutions of KernelBench level 2, at its sizes: what follows each convolution."""

from dataclasses import dataclass, replace
from typing import Callable

import torch
from torch.nn import functional as f


class BatchNorm:
    """In training mode, with running statistics."""

    def __init__(self):
        self._running = None

    def __call__(self, y, weight, bias):
        if self._running is None:
            self._running = torch.zeros_like(weight), torch.ones_like(weight)
        return f.batch_norm(y, *(v.detach() for v in self._running), weight, bias, training=True)


@dataclass
class Problem:
    number: int
    batch: int
    c_in: int
    c_out: int
    input: tuple
    tail: Callable  # of the convolution's output and the further operands
    extra: Callable = lambda c: []  # shapes of the further operands, given c_out
    kernel: int = 3
    stride: int = 2
    padding: int = 1
    output_padding: int = 0
    bias: bool = True

    def small(self):
        """A tiny version. Problems that normalise along W keep that size."""
        width = self.input[2] if self.number in (3, 34) else 8
        return replace(self, batch=2, c_in=max(1, self.c_in // 4), c_out=max(4, self.c_out // 4), input=(4, 4, width))

    def output(self):
        """The sizes of the convolution's output."""
        return [(i - 1) * self.stride - 2 * self.padding + self.kernel + self.output_padding for i in self.input]

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
        return [v.to(device, dtype).requires_grad_() for v in values]

    def function(self):
        """The whole problem in PyTorch, as a function of the operands."""
        def forward(x, weight, *others):
            x = f.avg_pool3d(x, 2) if self.number == 38 else x
            bias, others = (others[0], others[1:]) if self.bias else (None, others)
            y = f.conv_transpose3d(x, weight, bias, self.stride, self.padding, self.output_padding)
            return self.tail(y, *others)
        return forward

    def options(self):
        return [self.stride, self.padding, self.output_padding, int(self.bias)]


def scale(c):
    return [(c, 1, 1, 1)]


def affine(c):
    return [(c,), (c,)]


def global_mean(x):
    return x.mean((2, 3, 4), keepdim=True)


def normalised_less_mean(norm):
    def tail(y, weight, bias):
        z = norm(y, weight, bias)
        return z - global_mean(z)
    return tail


def residual(y, bias):
    constant = y.detach()
    return (y + bias + constant) * constant + constant


def clamped_swish(y, bias):
    z = torch.logsumexp(y, 1, keepdim=True)
    return torch.clamp(z * torch.sigmoid(z + 3) / 6 - bias, -1, 1)


PROBLEMS = [
    Problem(3, 32, 32, 64, (16, 32, 32),
            lambda y, s, w, b: f.gelu(f.avg_pool3d(f.layer_norm(y + s, w.shape, w, b), 2)),
            lambda c: [(), (64,), (64,)], output_padding=1),
    Problem(13, 16, 16, 64, (32, 128, 128), lambda y, b: torch.tanh(f.softmax(y.mean(2, keepdim=True) + b, 1)) * 2,
            scale, stride=1),
    Problem(15, 16, 16, 32, (16, 32, 32), normalised_less_mean(BatchNorm()), affine),
    Problem(20, 16, 32, 64, (16, 32, 32), residual, scale, output_padding=1),
    Problem(26, 128, 32, 64, (16, 16, 16), lambda y, a: (y + a) * f.hardswish(y + a), output_padding=1),
    Problem(34, 32, 32, 64, (16, 32, 32), lambda y, w, b: f.gelu(f.layer_norm(y, w.shape, w, b)) * 1.0,
            lambda c: [(64,), (64,)], kernel=4),
    Problem(38, 32, 32, 64, (32, 64, 64),
            lambda y, s: f.softmax(torch.clamp(y, 0, 1).flatten(2), 2).view(y.shape) * s, scale, output_padding=1),
    Problem(49, 16, 32, 64, (16, 32, 32), lambda y: torch.sigmoid(f.softmax(y, 1)), output_padding=1),
    Problem(50, 128, 3, 16, (16, 32, 32), lambda y, s, b, t: (f.avg_pool3d(y * s, 2) + b) * t,
            lambda c: [(), (c, 1, 1, 1), ()]),
    Problem(58, 128, 3, 16, (16, 32, 32), clamped_swish, lambda c: [(1, 1, 1, 1)]),
    Problem(60, 128, 3, 16, (16, 32, 32),
            lambda y, w, b: f.hardswish(f.group_norm(torch.sigmoid(y) * y, 4, w, b)), affine),
    Problem(61, 16, 64, 128, (32, 32, 32), lambda y, w, b: f.group_norm(f.relu(y), 8, w, b), affine, stride=1,
            padding=0, bias=False),
    Problem(72, 64, 3, 16, (32, 32, 32),
            lambda y, w, b, norm=BatchNorm(): f.avg_pool3d(f.avg_pool3d(norm(y, w, b), 2), 2), affine),
    Problem(74, 16, 16, 32, (16, 32, 32),
            lambda y, m: f.max_pool3d(f.leaky_relu(f.leaky_relu(y, 0.2) * m, 0.2), 2), scale, output_padding=1),
    Problem(77, 16, 64, 128, (16, 32, 32), lambda y, w, b, norm=BatchNorm(): global_mean(norm(y * 2, w, b)), affine,
            kernel=5, stride=1, padding=0),
    Problem(78, 16, 32, 64, (32, 32, 32), lambda y: f.max_pool3d(f.max_pool3d(y, 2), 3).sum(1, keepdim=True), kernel=5,
            padding=2),
    Problem(89, 128, 3, 16, (16, 32, 32),
            lambda y, s: torch.max(f.silu(f.softmax(f.max_pool3d(y, 2), 1) - s.view(-1, 1, 1, 1)), 1)[0],
            lambda c: [(c,)], output_padding=1),
    Problem(96, 128, 3, 16, (16, 32, 32), lambda y: torch.clamp(global_mean(f.max_pool3d(y * 0.5, 2)), 0, 1)),
    Problem(100, 16, 64, 128, (24, 48, 48), lambda y: torch.clamp(y, min=-1) / 2),
]
