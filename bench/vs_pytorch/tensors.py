"""Operands of a problem as torch tensors, and the reference in f64 with the errors against it."""

from dataclasses import dataclass
from typing import Any

from common.pytorch import torch

SAMPLES = 48  # elements of a weight's gradient that are computed in f64
LIMITS = {"highest": 1e-5, "high": 2e-3, "medium": 2e-2, "bf16": 2e-2, "f16": 4e-3}  # relative, Frobenius
# Measured errors of PyTorch's strict weight gradients: 2e-5 for sums over a million products and more (61, 73), 4e-5
# to 5e-5 for 7 million (70). Ours are at most 1.4e-6.
PYTORCH_STRICT_WEIGHT_LIMIT = 8e-5


def pytorch_limit(precision, pass_):
    """The limit for PyTorch's own results."""
    long_sums = precision == "highest" and pass_ in ("grad-weight", "step")
    return PYTORCH_STRICT_WEIGHT_LIMIT if long_sums else LIMITS[precision]


@dataclass
class Tensors:
    x: Any
    weight: Any
    bias: Any
    gy: Any


def random_tensors(p, device, dtype):
    def randn(*shape):
        return torch.randn(*shape, device=device).to(dtype)

    return Tensors(randn(*p.input_shape), randn(*p.weight_shape), randn(p.c_out), randn(*p.output_shape))


def _conv_options(p):
    return dict(stride=p.stride, padding=p.padding, dilation=p.dilation, groups=p.groups)


class Reference:
    """The right results of a pass on the elements that `sample` picks: the batch's first entry, or for the
    gradient of the weight some elements drawn at random. `scale` is the same sum over absolute values."""

    def __init__(self, p, pass_, t):
        self._p, self._pass = p, pass_
        x, weight, gy = (v.detach() for v in (t.x, t.weight, t.gy))
        if pass_ == "grad-weight":
            draw = [torch.randint(n, (SAMPLES,)).tolist() for n in p.weight_shape]
            self._elements = tuple(draw)
            pairs = [self._weight_element(x, gy, *element) for element in zip(*draw)]
            self.value = torch.stack([value for value, _ in pairs])
            self.scale = torch.stack([scale for _, scale in pairs])
            return
        # PyTorch's own f64 kernels, not cuDNN's.
        with torch.backends.cudnn.flags(enabled=False):
            self.value = self._convolve(x[:1].double(), weight.double(), gy[:1].double())
            self.scale = self._convolve(x[:1].double().abs(), weight.double().abs(), gy[:1].double().abs())

    def sample(self, result):
        return result[self._elements] if self._pass == "grad-weight" else result[:1]

    def errors(self, result):
        """Relative error in the Frobenius norm; largest, and root mean square, of |y - y64| / sum |x||w|."""
        difference = self.sample(result).double() - self.value
        relative = difference.norm() / self.value.norm()
        scaled = difference.abs() / self.scale.clamp_min(1e-300)
        return relative.item(), scaled.max().item(), scaled.square().mean().sqrt().item()

    def _convolve(self, x, weight, gy):
        f = torch.nn.functional
        if self._pass == "grad-input":
            return f.conv3d(gy, weight, **_conv_options(self._p))[(..., *map(slice, self._p.input))]
        return f.conv_transpose3d(x, weight, output_padding=self._p.output_padding, **_conv_options(self._p))

    def _weight_element(self, x, gy, c_in, c_out, *tap):
        """sum over n and i of x[n, c_in, i] * gy[n, c, i * stride - padding + tap * dilation]"""
        p = self._p
        c = c_in // (p.c_in // p.groups) * (p.c_out // p.groups) + c_out
        inside, hit = [], []
        for axis in range(3):
            shift = tap[axis] * p.dilation - p.padding[axis]
            live = [i for i in range(p.input[axis]) if 0 <= i * p.stride + shift < p.output[axis]]
            first, last = (live[0], live[-1]) if live else (0, -1)
            inside.append(slice(first, last + 1))
            hit.append(slice(first * p.stride + shift, last * p.stride + shift + 1, p.stride) if live
                       else slice(0, 0))
        products = x[(slice(None), c_in, *inside)].double() * gy[(slice(None), c, *hit)].double()
        return products.sum(), products.abs().sum()


def agreement(ours, theirs):
    """The largest relative difference of a batch entry (of an input channel, for a weight), over all results. It
    covers the elements that are not in the f64 sample. NaN if any difference is NaN."""
    differences = []
    for a, b in zip(ours, theirs):
        for u, v in zip(a, b) if a.dim() == 5 else [(a, b)]:
            differences.append((u.double() - v.double()).norm() / v.double().norm())
    return torch.stack(differences).max().item()
