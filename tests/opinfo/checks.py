"""The checks of one sample: forward, gradient, second gradient; and that errors are refused."""

import torch

import voxgrad
from compare import difference, largest
from oracle import FLOATING
from voxgrad import Inexpressible, VoxError


class Disagreement(Exception):
    """voxgrad and PyTorch differ. `kind`: refused, accepted, dtype, forward, gradient, second gradient, wild.
    `count` elements do, where there are any."""

    def __init__(self, kind, message, count=0):
        super().__init__(message)
        self.kind, self.message, self.count = kind, message, count


class PyTorchRefuses(Exception):
    pass


def listed(results):
    results = results if isinstance(results, (tuple, list)) else [results]
    return [r for r in results if r is not None]


def bind(entry, sample):
    """voxgrad's results for a sample of its tensors. Python's own errors mean that the sample does not fit the
    signature in ops.py."""
    try:
        return listed(sample.call(entry.call))
    except (TypeError, ValueError, AttributeError, IndexError, ZeroDivisionError) as error:
        raise Inexpressible(str(error)) from error


def refused(call, *arguments):
    try:
        return call(*arguments)
    except VoxError as error:
        raise Disagreement("refused", str(error)) from error
    except voxgrad.WildError as error:
        raise Disagreement("wild", str(error)) from error


def leaves(sample):
    return [t for t in sample.tensors() if t.requires_grad]


def check(entry, reference, low, counts):
    """Compares the op on `low`, the sample in the dtype and layout to test."""
    high = low if entry.own_dtype else low.map(
        lambda t: t.detach().double().requires_grad_(t.requires_grad) if t.is_floating_point() else t)
    tested = [t.dtype for t in low.tensors() if t.is_floating_point()]
    tested = tested[0] if tested else torch.float32

    try:
        want = listed(high.call(reference))
    except Exception as error:
        if "not implemented for" not in str(error):  # that concerns PyTorch's dtypes, not the call
            check_error(entry, low, str(error).splitlines()[0], counts)
        raise PyTorchRefuses(str(error)) from error
    if NotImplemented in want:
        raise PyTorchRefuses("a number as the left operand")
    alternative = None
    if low.source == "special" and tested in FLOATING:
        try:
            alternative = listed(low.call(reference))
        except RuntimeError:
            alternative = None  # PyTorch has no such kernel

    vox_leaves = []

    def to_vox(t):
        requires_grad = t.requires_grad and entry.gradients
        v = voxgrad.tensor(t.detach(), requires_grad)
        if requires_grad:
            vox_leaves.append(v)
        return v
    got = refused(bind, entry, low.map(to_vox))
    counts["samples"] += 1
    if len(got) != len(want):
        raise Disagreement("forward", f"{len(got)} results, PyTorch has {len(want)}")

    def expected_dtype(t):
        if not t.is_floating_point() or entry.own_dtype:
            return t.dtype
        return low.kwargs.get("dtype") or tested

    operands = largest(high.tensors())
    for i, (g, w) in enumerate(zip(got, want)):
        if g.dtype != expected_dtype(w):
            raise Disagreement("dtype", f"{g.dtype}, PyTorch has {expected_dtype(w)}")
        scale = 0 if entry.elementwise and g.dtype != torch.float64 else max(operands, largest([w]))
        order = "gradient" if entry.composed else "forward"
        other = alternative[i] if alternative and alternative[i].shape == w.shape else None
        different = difference(g.torch(), w.detach(), g.dtype, order, scale, other)
        if different:
            raise Disagreement("forward", *different)

        if g.dtype.is_floating_point and largest([w]) > torch.finfo(g.dtype).max:
            counts["beyond the dtype's range, no gradient"] += 1
            return

    torch_leaves = leaves(high) if entry.gradients else []
    pairs = [(g, w) for g, w in zip(got, want) if w.requires_grad and w.is_floating_point()]
    if not torch_leaves or not pairs:
        return
    if entry.elementwise and len(want) == 1:
        operands = max(operands, largest_term(high, reference, want[0]))
    check_gradients(pairs, vox_leaves, torch_leaves, low, reference, alternative is not None, operands, counts)


def largest_term(sample, reference, result):
    """The largest derivative of an elementwise op. The gradient by an operand that is broadcast is a sum of
    such terms, each rounded, and may be much smaller than they are."""
    shapes = [tuple(t.shape) for t in leaves(sample)]
    broadcasts = all(len(s) <= result.dim() and all(n in (1, m) for n, m in zip(s[::-1], result.shape[::-1]))
                     for s in shapes)
    if not broadcasts or all(s == tuple(result.shape) for s in shapes):
        return 0
    each = sample.map(lambda t: t.detach().expand(result.shape).requires_grad_() if t.requires_grad else t)
    try:
        return largest(torch.autograd.grad(listed(each.call(reference))[0].sum(), leaves(each)))
    except RuntimeError:  # an operand that must not be expanded: the value of masked_fill
        return 0


def random_like(t, dtype):
    return torch.randn(t.shape, dtype=torch.float32, device=t.device).to(dtype)


def check_gradients(pairs, vox_leaves, torch_leaves, low, reference, special, operands, counts):
    dtypes = [g.dtype for g, _ in pairs]
    vs = [(torch.ones_like(w) if special else random_like(w, d)).to(d) for (_, w), d in zip(pairs, dtypes)]
    vs64 = [v.double().requires_grad_() for v in vs]
    try:
        want = torch.autograd.grad([w for _, w in pairs], torch_leaves, vs64, create_graph=True, allow_unused=True)
    except RuntimeError as error:  # max_unpool2d takes tensors of which it has no gradient
        raise PyTorchRefuses(str(error)) from error
    alternative = None
    if special:
        try:
            results = [r for r in listed(low.call(reference)) if r.requires_grad]
            alternative = torch.autograd.grad(results, leaves(low), vs, allow_unused=True)
        except RuntimeError:
            pass  # PyTorch has no such kernel

    vox_vs = [voxgrad.tensor(v, True) for v in vs]
    got = refused(voxgrad.grad, [g for g, _ in pairs], vox_vs, vox_leaves)
    counts["gradients"] += 1
    scale = max(operands, largest([w for w in want if w is not None]), largest(vs))
    compare_gradients("gradient", got, want, torch_leaves, [g.dtype for g in vox_leaves], scale, alternative)
    # Second gradients at a pole or behind a NaN depend on the order of the products, in PyTorch as here.
    if special or not all(t.isfinite().all() for t in (*torch_leaves, *want) if t is not None):
        return
    if any(largest([w]) > torch.finfo(g.dtype).max for w, g in zip(want, got) if w is not None):
        return

    known = [(g, w) for g, w in zip(got, want) if g is not None and w is not None and w.requires_grad]
    if not known:
        return
    us = [random_like(w, g.dtype) for g, w in known]
    torch_inputs = torch_leaves + vs64
    try:
        want2 = torch.autograd.grad([w for _, w in known], torch_inputs, [u.double() for u in us], allow_unused=True)
    except RuntimeError:
        counts["PyTorch has no second gradient"] += 1
        return
    vox_inputs = vox_leaves + vox_vs
    if not all(g.requires_grad for g, _ in known):
        raise Disagreement("second gradient", "voxgrad's gradient is not recorded")
    got2 = refused(voxgrad.grad, [g for g, _ in known], [voxgrad.tensor(u) for u in us], vox_inputs)
    counts["second gradients"] += 1
    scale = max(scale, largest([w for w in want2 if w is not None]), largest(us))
    compare_gradients("second gradient", got2, want2, torch_inputs, [g.dtype for g in vox_inputs], scale)


def compare_gradients(order, got, want, like, dtypes, scale, alternative=None):
    """No gradient is a gradient of zeros."""
    for i, (g, w, leaf, dtype) in enumerate(zip(got, want, like, dtypes)):
        w = torch.zeros_like(leaf) if w is None else w.detach()
        g = torch.zeros_like(leaf, dtype=dtype) if g is None else g.torch()
        different = difference(g, w, dtype, order, scale, alternative and alternative[i])
        if different:
            text, count = different
            raise Disagreement(order, f"by operand {i}: {text}", count)


def check_error(entry, sample, says, counts):
    """A sample that PyTorch refuses must be a vox::Error."""
    try:
        vox_sample = sample.map(lambda t: voxgrad.tensor(t.detach()))
        bind(entry, vox_sample)
    except VoxError as error:
        counts["errors refused"] += 1
        if ":" not in error.message:
            raise Disagreement("accepted", f"the error names no op: {error}") from error
        return
    except voxgrad.WildError as error:
        raise Disagreement("wild", str(error)) from error
    raise Disagreement("accepted", f"PyTorch refuses this: {says}")
