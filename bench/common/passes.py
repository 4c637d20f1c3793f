"""The passes of a function in PyTorch, as shim.cpp has them in voxgrad, and the comparison of their results."""

from .pytorch import torch

DTYPES = {"f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16}  # all other precisions: float32


def set_precision(precision):
    tf32 = precision in ("high", "medium")
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32


def dtype_of(precision):
    return DTYPES.get(precision, torch.float32)


def pytorch_pass(function, operands, pass_, gy):
    """A function without arguments that runs the pass and returns its results: y; or, for the gradient `gy` of y, the
    gradients of the operands that require grad."""
    wanted = [t for t in operands if t.requires_grad]
    if pass_ == "forward":
        def forward():
            with torch.no_grad():
                return [function(*operands)]
        return forward
    if pass_ == "step":
        return lambda: list(torch.autograd.grad(function(*operands), wanted, gy))
    y = function(*operands)
    return lambda: list(torch.autograd.grad(y, wanted, gy, retain_graph=True))


def difference(ours, theirs):
    """The largest relative difference (Frobenius norm) over the results; NaN if any is NaN. The gradient of a
    vector or number, such as a bias before a norm, can be 0 up to rounding; so its difference is compared with
    the elements of the other gradients."""
    size = max((t.double().square().mean().sqrt().item() for t in theirs if t.numel()), default=0.0)
    found = []
    for a, b in zip(ours, theirs):
        scale = b.double().norm()
        if b.squeeze().dim() <= 1:
            scale = scale.clamp_min(size * b.numel() ** 0.5)
        found.append((a.double() - b.double()).norm() / scale.clamp_min(1e-300))
    return torch.stack(found).max().item()
