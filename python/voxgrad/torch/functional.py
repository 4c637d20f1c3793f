"""Functions of torch.nn.functional, with the same arguments and results, computed by voxgrad.

Convolutions have the further keyword `precision` ("highest", "high" or "medium"), norms `negative_slope`: leaky_relu of
the result in the same pass, relu if it is 0. What voxgrad cannot do (a mode, a rank) is a ValueError. `inplace` is
accepted, but the result is a new tensor. Where only PyTorch's ops will do (_or_pytorchs), PyTorch computes.
"""

import functools
import operator

import torch
import torch.nn.functional as F

from . import _ops, _precision
from ._tape import call


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
    if type(value) is tuple and len(value) == axes and {*map(type, value)} == {int} and max(value) < 2**62:
        return value
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
    device_type = tensors[0].device.type
    dtype = _autocast_dtype(device_type) if device_type in ("cpu", "cuda") else None
    if dtype is None:
        return tensors
    return [t.to(dtype) if t is not None and t.is_floating_point() and t.dtype is not torch.float64 else t
            for t in tensors]


def _batched(name, axes, input):
    """The tensor, which must have a number of dimensions that fits."""
    if _tensor(name, input).dim() not in (axes + 1, axes + 2):
        raise ValueError(f"{name}: input must have {axes + 2} dimensions, or {axes + 1} without a batch, got shape "
                         f"{tuple(input.shape)}")
    return input


def _check_ranks(name, axes, input, weight):
    _batched(name, axes, input)
    if weight.dim() != axes + 2:
        raise ValueError(f"{name}: weight must have {axes + 2} dimensions, got shape {tuple(weight.shape)}")


def _named(name, function):
    function.__name__ = function.__qualname__ = name
    return function


def _conv(axes):
    name = _ops.name_of(axes, False)

    def function(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1, *, precision=None):
        input, weight, bias = _autocast(name, input, weight, bias)
        _check_ranks(name, axes, input, weight)
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
    return _named(name, function)


def _conv_transpose(axes):
    name = _ops.name_of(axes, True)

    def function(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1, *, precision=None):
        input, weight, bias = _autocast(name, input, weight, bias)
        _check_ranks(name, axes, input, weight)
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
    return _named(name, function)


conv1d, conv2d, conv3d = map(_conv, (1, 2, 3))
conv_transpose1d, conv_transpose2d, conv_transpose3d = map(_conv_transpose, (1, 2, 3))


# ---- Ops by name (_tape.py) --------------------------------------------------------------------------------------


def _tensor(name, input):
    if not isinstance(input, torch.Tensor):
        raise TypeError(f"{name}: input must be a tensor, got {type(input).__name__}")
    return input


def _in_f32(*tensors):
    """The tensors as PyTorch's autocast gives them to softmax, losses, layer_norm, group_norm and their like."""
    device_type = tensors[0].device.type
    if device_type not in ("cpu", "cuda") or _autocast_dtype(device_type) is None:
        return tensors
    return [t.float() if t is not None and t.dtype in (torch.bfloat16, torch.float16) else t for t in tensors]


def _activation(name):
    def function(input, inplace=False):
        return call(name, _tensor(name, input))
    return _named(name, function)


relu, relu6, sigmoid, tanh, silu, mish, hardsigmoid, hardswish = map(
    _activation, ("relu", "relu6", "sigmoid", "tanh", "silu", "mish", "hardsigmoid", "hardswish"))


def leaky_relu(input, negative_slope=0.01, inplace=False):
    return call("leaky_relu", _tensor("leaky_relu", input), float(negative_slope))


def elu(input, alpha=1.0, inplace=False):
    return call("elu", _tensor("elu", input), float(alpha))


def gelu(input, approximate="none"):
    if approximate not in ("none", "tanh"):
        raise ValueError(f"gelu: approximate must be none or tanh, got {approximate!r}")
    return call("gelu" if approximate == "none" else "gelu_tanh", _tensor("gelu", input))


def softplus(input, beta=1.0, threshold=20.0):
    return call("softplus", *_in_f32(_tensor("softplus", input)), float(beta), float(threshold))


def hardtanh(input, min_val=-1.0, max_val=1.0, inplace=False):
    return call("hardtanh", _tensor("hardtanh", input), float(min_val), float(max_val))


def prelu(input, weight):
    return call("prelu", _tensor("prelu", input), weight.to(input.dtype))


def softmax(input, dim, *, dtype=None):
    return call("softmax", *(_in_f32(_tensor("softmax", input)) if dtype is None else [input.to(dtype)]), dim)


def log_softmax(input, dim, *, dtype=None):
    return call("log_softmax", *(_in_f32(_tensor("log_softmax", input)) if dtype is None else [input.to(dtype)]), dim)


def logsumexp(input, dim, keepdim=False):
    """torch.logsumexp"""
    return call("logsumexp", *_in_f32(_tensor("logsumexp", input)), [dim] if isinstance(dim, int) else list(dim), keepdim)


def _norm(name, input, running_mean, running_var, weight, bias, training, momentum, eps, negative_slope):
    options = weight, bias, training, momentum, float(eps), float(negative_slope)
    if any(t is not None and t.requires_grad for t in (running_mean, running_var)):
        raise ValueError(f"{name}: running statistics have no gradient; detach() them")
    return call(name, _tensor(name, input), running_mean, running_var, *options,
                again=(input, None, None, *options) if training else None)


def batch_norm(input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5, *,
               negative_slope=1.0):
    if eps < 0 or training and eps == 0:
        raise ValueError(f"batch_norm: eps must be positive, got {eps}")
    return _norm("batch_norm", input, running_mean, running_var, weight, bias, training, float(momentum), eps,
                 negative_slope)


def instance_norm(input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1,
                  eps=1e-5, *, negative_slope=1.0):
    return _norm("instance_norm", input, running_mean, running_var, weight, bias, use_input_stats, float(momentum), eps,
                 negative_slope)


def group_norm(input, num_groups, weight=None, bias=None, eps=1e-5, *, negative_slope=1.0):
    return call("group_norm", *_in_f32(_tensor("group_norm", input)), num_groups, *_in_f32_or_none(input, weight, bias),
                float(eps), float(negative_slope))


def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5, *, negative_slope=1.0):
    return call("layer_norm", *_in_f32(_tensor("layer_norm", input)), tuple(normalized_shape),
                *_in_f32_or_none(input, weight, bias), float(eps), float(negative_slope))


def _in_f32_or_none(input, *tensors):
    return _in_f32(input, *tensors)[1:]


def _in_3d(axes, input, function):
    """function(input) with 3 - axes more axes of one cell, which are removed from the result."""
    for _ in range(3 - axes):
        input = input.unsqueeze(-axes - 1)
    result = function(input)
    for _ in range(3 - axes):
        result = result.squeeze(-axes - 1)
    return result


def _window(name, axes, option, value, other=1):
    return (other,) * (3 - axes) + _per_axis(name, axes, option, value)


def _max_pool(axes):
    name = f"max_pool{axes}d"

    def function(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
        if return_indices:
            raise ValueError(f"{name}: return_indices must be False")
        windows = [_window(name, axes, option, value, other) for option, value, other in (
            ("kernel_size", kernel_size, 1), ("stride", kernel_size if stride in (None, ()) else stride, 1),
            ("padding", padding, 0), ("dilation", dilation, 1))]
        return _in_3d(axes, _batched(name, axes, input), lambda x: call("max_pool3d", x, *windows, ceil_mode))
    return _named(name, function)


def _avg_pool(axes):
    name = f"avg_pool{axes}d"

    def function(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True,
                 divisor_override=None):
        windows = [_window(name, axes, option, value, other) for option, value, other in (
            ("kernel_size", kernel_size, 1), ("stride", kernel_size if stride in (None, ()) else stride, 1),
            ("padding", padding, 0))]
        return _in_3d(axes, _batched(name, axes, input), lambda x: call(
            "avg_pool3d", x, *windows, ceil_mode, count_include_pad, divisor_override))
    return _named(name, function)


def _adaptive_pool(axes, how):
    name = f"adaptive_{how}_pool{axes}d"

    def function(input, output_size, return_indices=False):
        if return_indices:
            raise ValueError(f"{name}: return_indices must be False")
        wanted = output_size if isinstance(output_size, (tuple, list)) else (output_size,) * axes
        sizes = [have if size is None else size for size, have in zip(wanted, _batched(name, axes, input).shape[-axes:])]
        window = _window(name, axes, "output_size", sizes)
        return _in_3d(axes, input, lambda x: call(f"adaptive_{how}_pool3d", x, window))
    return _named(name, function)


max_pool1d, max_pool2d, max_pool3d = map(_max_pool, (1, 2, 3))
avg_pool1d, avg_pool2d, avg_pool3d = map(_avg_pool, (1, 2, 3))
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = (_adaptive_pool(axes, "max") for axes in (1, 2, 3))
adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = (_adaptive_pool(axes, "avg") for axes in (1, 2, 3))

LINEAR = {3: "linear", 4: "bilinear", 5: "trilinear"}  # by the input's rank


def interpolate(input, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None,
                antialias=False):
    linear = LINEAR.get(_tensor("interpolate", input).dim())
    if mode not in ("nearest", linear) or linear is None or recompute_scale_factor or antialias:
        raise ValueError(f"interpolate: mode must be nearest or linear over 1 to 3 axes, without recompute_scale_factor and "
                         f"antialias, got {mode!r} for shape {tuple(input.shape)}")
    axes = input.dim() - 2
    if scale_factor is not None:
        factors = scale_factor if isinstance(scale_factor, (tuple, list)) else (scale_factor,) * axes
        scale_factor = (1.0,) * (3 - axes) + tuple(map(float, factors))
    window = None if size is None else _window("interpolate", axes, "size", size)
    return _in_3d(axes, input, lambda x: call("interpolate", x, window, scale_factor, "nearest" if mode == "nearest" else
                                              "trilinear", bool(align_corners)))


def pad(input, pad, mode="constant", value=None):
    return call("pad", _tensor("pad", input), list(pad), mode if mode != "constant" else 0 if value is None else value)


def cat(tensors, dim=0):
    """torch.cat"""
    if not tensors:
        raise ValueError("cat: there must be at least one tensor")
    dtype = functools.reduce(torch.promote_types, [_tensor("cat", t).dtype for t in tensors])
    return call("cat", [t.to(dtype) for t in tensors], dim)


def grid_sample(input, grid, mode="bilinear", padding_mode="zeros", align_corners=None):
    if mode not in ("bilinear", "nearest"):
        raise ValueError(f"grid_sample: mode must be bilinear or nearest, got {mode!r}")
    if _autocast_dtype(_tensor("grid_sample", input).device.type) is not None:
        widest = torch.promote_types(input.dtype, grid.dtype)
        input, grid = input.to(widest), grid.to(widest)
    return call("grid_sample", input, grid, "nearest" if mode == "nearest" else
                "trilinear", padding_mode, bool(align_corners))


def _loss(name, option=None, default=1.0):
    def function(input, target, *, reduction="mean", **options):
        further = (options.pop(option, default),) if option else ()
        if options:
            raise TypeError(f"{name}: an unknown argument {next(iter(options))!r}")
        return call(name, *_in_f32(_tensor(name, input), target), reduction, *map(float, further))
    return _named(name, function)


mse_loss, l1_loss = _loss("mse_loss"), _loss("l1_loss")
smooth_l1_loss, huber_loss = _loss("smooth_l1_loss", "beta"), _loss("huber_loss", "delta")


def cross_entropy(input, target, weight=None, *, ignore_index=-100, reduction="mean", label_smoothing=0.0):
    input, target, weight = _in_f32(_tensor("cross_entropy", input), target, weight)
    return call("cross_entropy", input, target, weight, ignore_index, reduction, float(label_smoothing))


def binary_cross_entropy_with_logits(input, target, weight=None, *, reduction="mean", pos_weight=None):
    input, target, weight, pos_weight = _in_f32(_tensor("binary_cross_entropy_with_logits", input), target, weight,
                                                pos_weight)
    return call("binary_cross_entropy_with_logits", input, target, weight, pos_weight, reduction)


def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None):
    if dropout_p:
        raise ValueError(f"scaled_dot_product_attention: dropout_p must be 0, because voxgrad's random numbers are not "
                         f"PyTorch's; got {dropout_p}")
    dtype = _autocast_dtype(_tensor("scaled_dot_product_attention", query).device.type)
    if dtype is not None:
        query, key, value, attn_mask = (
            t.to(dtype) if t is not None and t.is_floating_point() and t.dtype is not torch.float64 else t
            for t in (query, key, value, attn_mask))
    return call("scaled_dot_product_attention", query, key, value, attn_mask, 0.0, is_causal, scale)


# ---- Where only PyTorch's ops will do ------------------------------------------------------------------------------

def _or_pytorchs(name, function):
    """The function; PyTorch's in transforms of torch.func and the like, of which voxgrad's tape knows nothing, and, unless
    it is a convolution, in graphs of torch.compile and torch.export and in modes such as FakeTensorMode. voxgrad's
    convolutions are custom ops there."""
    theirs, is_custom_op = getattr(F, name, None) or getattr(torch, name, None), name.startswith("conv")

    @functools.wraps(function)
    def either(*args, **kwargs):
        if not _ops.in_transform() and (is_custom_op or not _ops.compiling() and not _ops.modes()):
            return function(*args, **kwargs)
        if theirs is None:
            raise NotImplementedError(f"{name}: PyTorch {torch.__version__} has no such function, which is needed here")
        slope = kwargs.pop("negative_slope", 1.0) if name.endswith("_norm") else 1.0
        _precision.current(kwargs.pop("precision", None))
        kwargs.pop("inplace", None)
        result = theirs(*args, **kwargs)
        return result if slope == 1 else F.leaky_relu(result, slope)
    return either


globals().update({name: _or_pytorchs(name, f) for name, f in list(globals().items())
                  if not name.startswith("_") and getattr(f, "__module__", "") == __name__})
