"""PyTorch's own samples of each function (OpInfo), in f64 and f32: results, gradients, second gradients and errors of
voxgrad.torch.functional. As for ModuleInfo (test_module_info.py), `./run python-models` runs them."""

import re

import pytest
import torch
from torch.utils import _pytree

import voxgrad.torch
from support import in_f64

pytest.importorskip("expecttest")
op_db = pytest.importorskip("torch.testing._internal.common_methods_invocations").op_db
FUNCTIONS = {**{f"nn.functional.{name}": f for name, f in vars(voxgrad.torch.functional).items() if callable(f)},
             **{name: getattr(voxgrad.torch.functional, name) for name in ("cat", "softmax", "log_softmax", "logsumexp")}}
INFOS = [info for info in op_db if info.name in FUNCTIONS and info.variant_test_name != "complex"]
VARIANTS = ("nearest-exact", "bicubic", "area", "replicate_negative")  # that are errors of voxgrad
# What voxgrad refuses in others.
REFUSED = ("return_indices must be False|mode must be|padding must be >= 0|enable_gqa|2 to 5 dimensions, got shape .0,|"
           "running statistics have no gradient|cat: dim 1 is out of range for rank 1")
# PyTorch's gradient of hardsigmoid in f64 has 1/6 in f32.
LIMITS = {torch.float64: 1e-10, torch.float32: 1e-4, ("nn.functional.hardsigmoid", torch.float64): 1e-7}
REFUSALS = (RuntimeError, ValueError, TypeError, IndexError)


def weights(t):
    return torch.linspace(-1, 2, t.numel(), dtype=t.dtype).sin().reshape(t.shape)


def outcome(function, sample):
    """The results, gradients and second gradients; or the error of the call. PyTorch lacks some second gradients."""
    tree = _pytree.tree_map(lambda v: v.detach().requires_grad_(v.is_floating_point()) if isinstance(v, torch.Tensor) else v,
                            [sample.input, *sample.args])
    torch.manual_seed(0)
    try:
        results = function(*tree, **sample.kwargs)
    except REFUSALS as error:
        return error
    results = [*results] if isinstance(results, tuple) else [results]
    wanted = [r for r in results if r.requires_grad]
    leaves = [v for v in _pytree.tree_flatten(tree)[0] if isinstance(v, torch.Tensor) and v.requires_grad]
    along = [weights(r).requires_grad_() for r in wanted]
    first = torch.autograd.grad(wanted, leaves, along, create_graph=True, allow_unused=True) if wanted else ()
    again = [g for g in first if g is not None and g.requires_grad]
    try:
        second = torch.autograd.grad(again, [*leaves, *along], [weights(g) for g in again], allow_unused=True) if again else ()
    except RuntimeError as error:
        assert "is not implemented" in str(error)
        second = ()
    return [*results, *first, *second]


def assert_equal(got, expected, limit, what):
    """Within `limit` of the largest element of all; no gradient is one of zeros."""
    pairs = [(torch.zeros_like(e) if g is None else g, torch.zeros_like(g) if e is None else e)
             for g, e in zip(got, expected) if g is not None or e is not None]
    largest = max((e.abs().max().item() for _, e in pairs if e.numel()), default=0)
    for g, e in pairs:
        assert g.dtype == e.dtype and g.shape == e.shape, what
        torch.testing.assert_close(in_f64(g), in_f64(e), rtol=limit, atol=limit * largest, equal_nan=True,
                                   msg=lambda m: m + what)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("info", INFOS, ids=lambda info: info.formatted_name)
def test_samples(info, dtype):
    compared, limit = 0, LIMITS.get((info.name, dtype), LIMITS[dtype])
    for sample in info.sample_inputs("cpu", dtype, requires_grad=True):
        expected, got = (outcome(function, sample) for function in (info.op, FUNCTIONS[info.name]))
        if isinstance(expected, Exception):
            assert isinstance(got, Exception), sample
        elif isinstance(got, Exception):
            assert info.variant_test_name in VARIANTS or re.search(REFUSED, str(got)), got
        else:
            assert_equal(got, expected, limit, f" in {str(sample)[:500]}")
            compared += 1
    assert (compared > 0) == (info.variant_test_name not in VARIANTS)


@pytest.mark.parametrize("info", [info for info in INFOS if info.error_inputs_func], ids=lambda info: info.formatted_name)
def test_errors(info):
    for error in info.error_inputs("cpu"):
        sample = error.sample_input
        try:
            y = FUNCTIONS[info.name](sample.input, *sample.args, **sample.kwargs)
            assert sample.input.numel() == y.numel() == 0, sample  # of nothing voxgrad computes nothing
        except REFUSALS:
            pass
