"""Comparison with PyTorch: its own convolutions in f64, on the same (rounded) operands."""

import torch
import torch.nn.functional as F

import voxgrad.torch

FLOATING = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
# Limits of the difference from PyTorch in f64: Frobenius norms, relative to that of the result.
LIMITS = {torch.float64: 1e-13, torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}


def voxgrads(name):
    return getattr(voxgrad.torch.functional, name)


def in_f64(tensor, requires_grad=False):
    return tensor.detach().double().requires_grad_(requires_grad)


def assert_close(got, expected, what="result", limit=None):
    assert got.shape == expected.shape, f"{what}: shape {tuple(got.shape)}, not {tuple(expected.shape)}"
    error = (in_f64(got).cpu() - in_f64(expected).cpu()).norm().item()
    size = in_f64(expected).norm().item()
    limit = LIMITS[got.dtype] if limit is None else limit
    assert error <= limit * size + 1e-300, f"{what}: relative error {error / max(size, 1e-300):.2e}, limit {limit:.0e}"


def check_against_pytorch(name, input, weight, bias, backward=True, **options):
    """Compares the result and gradients of voxgrad's function `name` with PyTorch's in f64."""
    operands = [t for t in (input, weight, bias) if t is not None]
    for t in operands:
        t.requires_grad_(backward)
    references = [in_f64(t, backward) for t in operands]
    result = voxgrads(name)(input, weight, bias, **options)
    expected = getattr(F, name)(*references[:2], references[2] if bias is not None else None, **options)
    assert result.dtype == input.dtype and result.device == input.device and result.is_contiguous()
    assert_close(result, expected)
    if backward:
        grad = torch.randn_like(result)
        grads = torch.autograd.grad(result, operands, grad)
        expected_grads = torch.autograd.grad(expected, references, in_f64(grad))
        for what, got, right in zip(("input", "weight", "bias"), grads, expected_grads):
            assert_close(got, right, f"gradient of the {what}")
