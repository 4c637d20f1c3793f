"""Norm with activation, maximum pooling and interpolation of volumes, as ops for a compiled graph (backend.py).

They have PyTorch's arguments. Each is a custom op that writes to PyTorch's memory and keeps no tape, so that a compiler
plans what is saved, and a CUDA graph can capture it. Its gradient is a second op, which has no gradient.
"""

import math

import torch

from . import functional
from ._ops import _as_function, dense, kernel


def _op(name, schema, compute, empty, save=None, gradients=None):
    """`empty` makes the results without values; compute(results, *arguments) fills them. The gradient is a node around
    the op, which the compiled graph does not have: an op that has a gradient itself takes longer to call."""
    def run(*arguments):
        arguments = [dense(a) if isinstance(a, torch.Tensor) else a for a in arguments]
        results = empty(*arguments)
        if arguments[0].numel():
            compute(results, *arguments)
        return results

    torch.library.define(f"voxgrad::{name}", schema, tags=torch.Tag.pt2_compliant_tag)
    torch.library.impl(f"voxgrad::{name}", ("cpu", "cuda"), run)
    torch.library.register_fake(f"voxgrad::{name}", empty)
    op = getattr(torch.ops.voxgrad, name)
    return _as_function(f"voxgrad_{name}", op, save, gradients) if gradients else op


def _wide(tensor):
    return torch.float32 if tensor.dtype in (torch.bfloat16, torch.float16) else tensor.dtype


# ---- Norms: `geometry` is detail::NormGeometry, ops/norm_geometry.h ------------------------------------------------

def _save_norm(ctx, inputs, output):
    x, weight, bias, ctx.geometry, _, ctx.slope = inputs
    ctx.save_for_backward(x, weight, bias, *output[1:])
    ctx.mark_non_differentiable(*output[1:])


def _norm_gradients(ctx, grad, *_):
    x, weight, bias, mean, rstd = ctx.saved_tensors
    found = _norm_gradient(grad, x, weight, bias, mean, rstd, ctx.geometry, ctx.slope)
    return (*(g if needed else None for g, needed in zip(found, ctx.needs_input_grad)), None, None, None)


def _like(tensor):
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


_norm = _op(
    "norm", "(Tensor x, Tensor? weight, Tensor? bias, SymInt[] geometry, float eps, float slope) -> "
    "(Tensor, Tensor, Tensor)",
    lambda results, x, weight, bias, geometry, eps, slope: kernel(
        b"norm", x, tuple(geometry), weight, bias, eps, slope, *results),
    lambda x, weight, bias, geometry, eps, slope: (
        _like(x), x.new_empty(geometry[1], dtype=_wide(x)), x.new_empty(geometry[1], dtype=_wide(x))),
    _save_norm, _norm_gradients)

_norm_gradient = _op(
    "norm_gradient", "(Tensor grad, Tensor x, Tensor? weight, Tensor? bias, Tensor mean, Tensor rstd, "
    "SymInt[] geometry, float slope) -> (Tensor, Tensor, Tensor)",
    lambda results, grad, x, weight, bias, mean, rstd, geometry, slope: kernel(
        b"norm_gradient", grad, x, tuple(geometry), weight, bias, mean, rstd, slope, results[0],
        results[1] if weight is not None else None, results[2] if bias is not None else None),
    lambda grad, x, weight, bias, mean, rstd, geometry, slope: (
        _like(x), *(x.new_empty(0) if t is None else _like(t) for t in (weight, bias))))


def _normalised(x, weight, bias, geometry, eps, slope):
    if x.dim() != 5:
        raise ValueError("it is no volume: voxgrad computes norms of 5 dimensions here")
    for t in (weight, bias):
        if t is not None and t.dtype not in (x.dtype, _wide(x)):
            raise TypeError(f"its weights are of {t.dtype}, the input of {x.dtype}")
    return _norm(x, weight, bias, geometry, float(eps), float(slope))


def batch_norm(input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5, *,
               negative_slope=1.0):
    if not training:
        raise ValueError("in evaluation it is elementwise, and the compiler fuses it")
    batch, channels, cells = len(input), input.shape[1], math.prod(input.shape[2:])
    y, mean, rstd = _normalised(input, weight, bias, (batch, channels, cells, channels, cells), eps, negative_slope)
    if running_mean is not None:
        with torch.no_grad():
            count = batch * cells
            variance = (rstd.square().reciprocal() - eps).clamp(min=0) * (count / (count - 1))
            for running, new in ((running_mean, mean), (running_var, variance)):
                running.mul_(1 - momentum).add_(new, alpha=momentum)
    return y


def instance_norm(input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True,
                  momentum=0.1, eps=1e-5, *, negative_slope=1.0):
    if running_mean is not None or not use_input_stats:
        raise ValueError("it has running statistics")
    channels, cells = input.shape[1], math.prod(input.shape[2:])
    return _normalised(input, weight, bias, (1, len(input) * channels, cells, channels, cells), eps, negative_slope)[0]


def group_norm(input, num_groups, weight=None, bias=None, eps=1e-5, *, negative_slope=1.0):
    input, weight, bias = functional._in_f32(input, weight, bias)
    cells = math.prod(input.shape[2:])
    geometry = (1, len(input) * num_groups, input.shape[1] // num_groups * cells, num_groups, cells)
    return _normalised(input, weight, bias, geometry, eps, negative_slope)[0]


# ---- Maximum pooling -----------------------------------------------------------------------------------------------

def _pooled(x, kernel, stride, padding, dilation, ceil_mode):
    """The size of the result, as PyTorch computes it."""
    def windows(size, k, s, p, d):
        count = (size + 2 * p - d * (k - 1) - 1 + (s - 1 if ceil_mode else 0)) // s + 1
        return count - 1 if ceil_mode and (count - 1) * s >= size + p else count
    return [*x.shape[:-3], *map(windows, x.shape[-3:], kernel, stride, padding, dilation)]


def _empty_pooled(x, kernel, stride, padding, dilation, ceil_mode):
    size = _pooled(x, kernel, stride, padding, dilation, ceil_mode)
    small = x.is_cuda and math.prod(kernel) <= 255  # Pool3dGeometry::has_small_windows
    return x.new_empty(size), x.new_empty(size, dtype=torch.uint8 if small else torch.int64)


def _save_pool(ctx, inputs, output):
    ctx.size, ctx.windows = inputs[0].shape, inputs[1:5]
    ctx.save_for_backward(output[1])


def _pool_gradients(ctx, grad, _):
    return (_max_pool_gradient(grad, *ctx.saved_tensors, ctx.size, *ctx.windows), *(None,) * 5)


_WINDOWS = "SymInt[] kernel, SymInt[] stride, SymInt[] padding, SymInt[] dilation"
_max_pool = _op(
    "max_pool3d", f"(Tensor x, {_WINDOWS}, bool ceil_mode) -> (Tensor, Tensor)",
    lambda results, x, *windows: kernel(b"max_pool3d", x, *map(tuple, windows[:4]), *results),
    _empty_pooled, _save_pool, _pool_gradients)
_max_pool_gradient = _op(
    "max_pool3d_gradient", f"(Tensor grad, Tensor indices, SymInt[] size, {_WINDOWS}) -> Tensor",
    lambda result, grad, indices, size, *windows: kernel(
        b"max_pool3d_gradient", grad, indices, *map(tuple, windows), result),
    lambda grad, indices, size, *windows: grad.new_empty(size))


def max_pool3d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    if return_indices:
        raise ValueError("it returns indices")
    windows = [functional._per_axis("max_pool3d", 3, option, value) for option, value in (
        ("kernel_size", kernel_size), ("stride", kernel_size if stride in (None, ()) else stride), ("padding", padding),
        ("dilation", dilation))]
    return _max_pool(functional._batched("max_pool3d", 3, input), *windows, ceil_mode)[0]


# ---- Interpolation: linear, so its gradient is its adjoint ---------------------------------------------------------

def _save_axes(ctx, inputs, output):
    ctx.size, (_, _, ctx.axes, ctx.adjoint) = inputs[0].shape[2:], inputs


_interpolate = _op(  # `axes`: numerators, denominators, offsets and `nearest` of InterpolateAxis, for each axis
    "interpolate", "(Tensor x, SymInt[] size, float[] axes, bool adjoint) -> Tensor",
    lambda result, x, size, axes, adjoint: kernel(
        b"interpolate", x, adjoint, *(tuple(axes[i:i + 3]) for i in (0, 3, 6, 9)), result),
    lambda x, size, axes, adjoint: x.new_empty((*x.shape[:2], *size)),
    _save_axes, lambda ctx, grad: (_interpolate(grad, ctx.size, ctx.axes, not ctx.adjoint), None, None, None))


def interpolate(input, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None,
                antialias=False):
    if mode not in ("nearest", "trilinear") or input.dim() != 5 or recompute_scale_factor or antialias:
        raise ValueError("voxgrad computes the modes nearest and trilinear of 5 dimensions here, without "
                         "recompute_scale_factor and antialias")
    have = input.shape[2:]
    scales = (None,) * 3
    if scale_factor is not None:
        scales = scale_factor if isinstance(scale_factor, (tuple, list)) else (scale_factor,) * 3
        size = [math.floor(n * scale) for n, scale in zip(have, scales)]
    size = functional._per_axis("interpolate", 3, "size", size)
    if not all(type(n) is int for n in (*have, *size)):
        raise ValueError("its sizes vary from call to call")  # they are numbers of the op
    axes = []
    for n, m, scale in zip(have, size, scales):  # make_axis() of ops/interpolate.cpp
        if n == m:
            axes.append((1, 1, 0, 1))
        elif align_corners:
            axes.append((n - 1 if m > 1 else 0, m - 1 if m > 1 else 1, 0, 0))
        else:
            axes.append((*((n, m) if scale is None else (1, scale)), *((0, 1) if mode == "nearest" else (0.5, 0))))
    return _interpolate(input, size, [float(field) for fields in zip(*axes) for field in fields], False)
