"""PyTorch's own samples of each layer (ModuleInfo) in f64: results, gradients, buffers and errors of voxgrad's layer.
They are no public part of PyTorch, and need its package expecttest; `./run python-models` installs that."""

import copy

import pytest
import torch

import voxgrad.torch
from support import assert_close
from voxgrad.torch.convert import _REPLACEMENTS

pytest.importorskip("expecttest")
common_modules = pytest.importorskip("torch.testing._internal.common_modules")
INFOS = [info for info in common_modules.module_db if info.module_cls in _REPLACEMENTS]


def outcome(layer, sample):
    """The result, gradients and buffers; or None if the layer refuses its input."""
    try:
        y = layer(*sample.args, **sample.kwargs)
    except (RuntimeError, ValueError, TypeError):
        return None
    leaves = [t for t in (*sample.args, *layer.parameters()) if isinstance(t, torch.Tensor) and t.requires_grad]
    along = torch.linspace(-1, 2, y.numel(), dtype=y.dtype).sin().reshape(y.shape)
    return [y, *torch.autograd.grad(y, leaves, along), *layer.buffers()] if y.requires_grad else [y, *layer.buffers()]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("info", INFOS, ids=lambda info: info.name)
def test_samples(info, training):
    compared = 0
    for sample in info.module_inputs_func(info, device="cpu", dtype=torch.float64, requires_grad=True, training=training):
        if sample.forward_input is None:
            continue
        made = sample.constructor_input
        theirs = info.module_cls(*made.args, **made.kwargs).double().train(training)
        ours = copy.deepcopy(theirs)
        if not voxgrad.torch.convert(ours, verbose=False):
            continue  # a mode that voxgrad leaves to PyTorch
        expected, got = (outcome(layer, sample.forward_input) for layer in (theirs, ours))
        assert (expected is None) == (got is None), sample.desc
        for e, g in zip(expected or (), got or ()):
            assert g.dtype == e.dtype
            assert_close(g, e, sample.desc, 1e-10)
        compared += 1
    assert compared


@pytest.mark.parametrize("info", [info for info in INFOS if info.module_error_inputs_func], ids=lambda info: info.name)
def test_errors(info):
    for error in info.module_error_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=False, training=True):
        made, given = error.module_error_input.constructor_input, error.module_error_input.forward_input
        with pytest.raises((RuntimeError, ValueError, TypeError)):
            _REPLACEMENTS[info.module_cls](*made.args, **made.kwargs)(*given.args, **given.kwargs)
