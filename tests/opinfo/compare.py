"""When two results are the same.

The reference is PyTorch in f64 on the operands as they were rounded to the dtype under test. `unit` is the
distance from 1 to the next number of the dtype in which voxgrad computes (f32 for bf16 and f16, else the
dtype itself), `rounding` that of the dtype in which it stores. A result r for the reference w may differ by

    forward             8 unit |w| + rounding |w|             + 32 unit scale
    gradient           16 unit |w| + 2 rounding (|w| + scale) + 64 unit scale
    second gradient    16 unit |w| + 4 rounding (|w| + scale) + 64 unit scale

where rounding is 0 for f32 and f64, and scale is the largest number in the reference or among the operands.
Elementwise ops have scale 0 forward, except in f64, where PyTorch itself is no better than voxgrad. An op that
is composed of several has the tolerance of a gradient. The reference rounded to the dtype, also NaN or infinity,
is always right. Integers and bools are equal or wrong.
"""

import torch

TERMS = {"forward": (8, 1, 0, 32), "gradient": (16, 2, 2, 64), "second gradient": (16, 4, 4, 64)}
SIXTEEN = (torch.bfloat16, torch.float16)


def largest(tensors):
    """The largest finite magnitude."""
    best = 0.0
    for t in tensors:
        if t.is_floating_point() and t.numel():
            finite = t.detach().double().abs().nan_to_num(0, 0, 0)
            best = max(best, finite.max().item())
    return best


def same(got, want, dtype, order, scale):
    """Which elements of got (of that dtype) are right."""
    if not want.is_floating_point():
        return got == want
    rounded = want.to(dtype).double()
    got, want = got.double(), want.double()
    unit = torch.finfo(torch.float32 if dtype in SIXTEEN else dtype).eps
    rounding = torch.finfo(dtype).eps if dtype in SIXTEEN else 0.0
    units, roundings, scaled_roundings, scaled_units = TERMS[order]
    allowed = (units * unit + roundings * rounding) * want.abs() + torch.finfo(dtype).tiny * torch.finfo(dtype).eps
    allowed = allowed + (scaled_roundings * rounding + scaled_units * unit) * scale
    return (got == rounded) | (got.isnan() & rounded.isnan()) | ((got - want).abs() <= allowed)


def difference(got, want, dtype, order, scale, alternative=None):
    """The difference in words and the number of elements; or None. Results that agree with `alternative`,
    PyTorch in the dtype itself, are right too."""
    if tuple(got.shape) != tuple(want.shape):
        return f"shape {tuple(got.shape)}, PyTorch has {tuple(want.shape)}", 0
    right = same(got, want, dtype, order, scale)
    if alternative is not None:
        right = right | same(got, alternative.to(want.dtype), dtype, order, scale)
    if right.all():
        return None
    index = tuple((~right).nonzero()[0].tolist())
    count = (~right).sum().item()
    return (f"{count} of {right.numel()} elements, first at {index}: {got[index].item()!r}, "
            f"PyTorch has {want[index].item()!r}"), count
