"""The convolutions of torch.nn.functional, with the same arguments and results, computed by voxgrad.

The keyword `precision` ("highest", "high" or "medium") is added.
"""

import operator

import torch
import torch.nn.functional as F

from .. import _library
from . import _ops, _precision


_INTEGERS = (int, getattr(torch, "SymInt", int))


def _whole(value):
    """A whole number of Python, NumPy or a tensor, or a symbol of torch.compile; None if it is another thing."""
    if isinstance(value, bool):
        return None
    if isinstance(value, _INTEGERS):
        return value
    try:
        return operator.index(value)
    except TypeError:
        return None


def _per_axis(name, axes, option, value):
    """One whole number per axis, as a tuple."""
    numbers = tuple(map(_whole, value if isinstance(value, (tuple, list)) else (value,)))
    if len(numbers) not in (1, axes) or None in numbers:
        raise ValueError(f"{name}: {option} must be one whole number, or {axes}, got {value!r}")
    if any(isinstance(number, int) and number >= 2**62 for number in numbers):
        raise ValueError(f"{name}: {option} must be below 2^62 on every axis, got {value!r}")
    return numbers * (axes // len(numbers))


def _checked_groups(name, groups):
    number = _whole(groups)
    if number is None:
        raise ValueError(f"{name}: groups must be a whole number, got {groups!r}")
    return number


def _autocast_dtype(device_type):
    """The dtype of autocast on this kind of device, or None."""
    if hasattr(torch, "get_autocast_dtype"):
        return torch.get_autocast_dtype(device_type) if torch.is_autocast_enabled(device_type) else None
    if device_type == "cuda":
        return torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else None
    return torch.get_autocast_cpu_dtype() if torch.is_autocast_cpu_enabled() else None


def _autocast(name, *tensors):
    """The tensors as PyTorch's own convolutions see them: autocast casts floating ones except f64."""
    for argument, tensor in zip(("input", "weight", "bias"), tensors):
        if not isinstance(tensor, torch.Tensor) and not (argument == "bias" and tensor is None):
            raise TypeError(f"{name}: {argument} must be a tensor, got {type(tensor).__name__}")
    _ops.refuse_tangents(name, *tensors)
    device_type = tensors[0].device.type
    dtype = _autocast_dtype(device_type) if device_type in ("cpu", "cuda") else None
    if dtype is None:
        return tensors
    return [t.to(dtype) if t is not None and t.is_floating_point() and t.dtype is not torch.float64 else t
            for t in tensors]


def _conv(axes, input, weight, bias, stride, padding, dilation, groups, precision):
    name = _library.name_of(axes, False)
    input, weight, bias = _autocast(name, input, weight, bias)
    _library.check_ranks(axes, False, input.shape, weight.shape)
    stride = _per_axis(name, axes, "stride", stride)
    dilation = _per_axis(name, axes, "dilation", dilation)
    reach = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:])]
    if padding == "same":
        if any(s != 1 for s in stride):
            raise ValueError(f"{name}: padding 'same' needs stride 1, got {stride}")
        padding = tuple(r // 2 for r in reach)
        if any(r % 2 for r in reach):  # the longer end of an odd padding is the last one
            input = F.pad(input, [n for r in reversed(reach) for n in (0, r % 2)])
    elif padding == "valid":
        padding = (0,) * axes
    elif isinstance(padding, str):
        raise ValueError(f"{name}: padding must be numbers, 'same' or 'valid', got {padding!r}")
    padding = _per_axis(name, axes, "padding", padding)
    # An illegal stride must reach voxgrad's check.
    output_size = [(size + 2 * p - r - 1) // (s or 1) + 1
                   for size, p, r, s in zip(input.shape[-axes:], padding, reach, stride)]
    groups = _checked_groups(name, groups)
    return _ops.convolution(input, weight, bias, output_size, stride, padding, dilation, groups, False,
                            _precision.current(precision))


def _conv_transpose(axes, input, weight, bias, stride, padding, output_padding, groups, dilation, precision):
    name = _library.name_of(axes, True)
    input, weight, bias = _autocast(name, input, weight, bias)
    _library.check_ranks(axes, True, input.shape, weight.shape)
    stride = _per_axis(name, axes, "stride", stride)
    padding = _per_axis(name, axes, "padding", padding)
    output_padding = _per_axis(name, axes, "output_padding", output_padding)
    dilation = _per_axis(name, axes, "dilation", dilation)
    # Here, because voxgrad gets an output_size instead.
    if any(o and (o < 0 or o >= max(s, d, 1)) for o, s, d in zip(output_padding, stride, dilation)):
        raise ValueError(f"{name}: output_padding must be >= 0 and smaller than stride or dilation, got "
                         f"{output_padding} with stride {stride} and dilation {dilation}")
    output_size = [(size - 1) * s - 2 * p + d * (k - 1) + o + 1
                   for size, s, p, d, k, o in zip(input.shape[-axes:], stride, padding, dilation, weight.shape[2:],
                                                  output_padding)]
    groups = _checked_groups(name, groups)
    return _ops.convolution(input, weight, bias, output_size, stride, padding, dilation, groups, True,
                            _precision.current(precision))


def conv1d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1, *, precision=None):
    return _conv(1, input, weight, bias, stride, padding, dilation, groups, precision)


def conv2d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1, *, precision=None):
    return _conv(2, input, weight, bias, stride, padding, dilation, groups, precision)


def conv3d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1, *, precision=None):
    return _conv(3, input, weight, bias, stride, padding, dilation, groups, precision)


def conv_transpose1d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1, *,
                     precision=None):
    return _conv_transpose(1, input, weight, bias, stride, padding, output_padding, groups, dilation, precision)


def conv_transpose2d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1, *,
                     precision=None):
    return _conv_transpose(2, input, weight, bias, stride, padding, output_padding, groups, dilation, precision)


def conv_transpose3d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1, *,
                     precision=None):
    return _conv_transpose(3, input, weight, bias, stride, padding, output_padding, groups, dilation, precision)
