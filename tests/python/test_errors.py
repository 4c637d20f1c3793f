"""Wrong input of every kind: an exception in voxgrad's words, and no crash."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

import voxgrad
import voxgrad.torch
from conftest import why_no_cuda
from support import voxgrads

X, W, B = torch.ones(2, 4, 5, 5), torch.ones(6, 4, 3, 3), torch.ones(6)

REFUSED = [
    (dict(stride=0), ValueError, r"conv2d: stride must be >= 1 on every axis, got \(0,0\)"),
    (dict(stride=-1), ValueError, "stride must be >= 1"),
    (dict(stride=(1, 2, 3)), ValueError, "stride must be one whole number, or 2"),
    (dict(stride=1.5), ValueError, "stride must be one whole number"),
    (dict(stride=None), ValueError, "stride must be one whole number"),
    (dict(stride=(1, 1.5)), ValueError, r"stride must be one whole number, or 2, got \(1, 1.5\)"),
    (dict(stride=("1", 1)), ValueError, "stride must be one whole number"),
    (dict(stride=(True, 1)), ValueError, "stride must be one whole number"),
    (dict(stride=np.array([1, 2])), ValueError, "stride must be one whole number"),
    (dict(stride=np.array([1])), ValueError, "stride must be one whole number"),
    (dict(stride=torch.tensor(1.5)), ValueError, "stride must be one whole number"),
    (dict(padding={1}), ValueError, "padding must be one whole number"),
    (dict(groups=1.0), ValueError, "groups must be a whole number, got 1.0"),
    (dict(groups=[1]), ValueError, "groups must be a whole number"),
    (dict(precision=["high"]), ValueError, "precision must be one of"),
    (dict(weight=W.to("meta")), RuntimeError, "weight is on meta"),
    (dict(padding=-1), ValueError, "padding must be >= 0"),
    (dict(padding="sane"), ValueError, "'same' or 'valid', got 'sane'"),
    (dict(padding="same", stride=2), ValueError, "padding 'same' needs stride 1"),
    (dict(dilation=0), ValueError, "dilation must be >= 1"),
    (dict(dilation=3), ValueError, "the output would be empty"),
    (dict(dilation=2**62), ValueError, r"dilation must be below 2\^62 on every axis, got 4611686018427387904"),
    (dict(padding=2**62), ValueError, r"padding must be below 2\^62"),
    (dict(stride=2**70), ValueError, r"stride must be below 2\^62"),
    (dict(stride=-2**70), ValueError, "must fit 64 bits"),
    (dict(groups=2**64), ValueError, "must fit 64 bits"),
    (dict(groups=0), ValueError, "groups must be >= 1"),
    (dict(groups=3), ValueError, "groups must divide the input channels"),
    (dict(groups="1"), ValueError, "groups must be a whole number"),
    (dict(input=X[0, 0]), ValueError, r"input must have 4 dimensions, or 3 without a batch, got shape \(5, 5\)"),
    (dict(input=X[:, :3]), ValueError, r"weight must be \(C_out, C_in/groups, kH, kW\)"),
    (dict(input=X[:, :, :2]), ValueError, "the output would be empty"),
    (dict(input=torch.ones(2, 0, 5, 5)), ValueError, "at least one channel"),
    (dict(weight=W[0]), ValueError, "weight must have 4 dimensions"),
    (dict(weight=torch.ones(6, 4, 0, 3)), ValueError, "at least one channel and one cell"),
    (dict(bias=torch.ones(5)), ValueError, "bias must have one number per output channel"),
    (dict(bias=torch.ones(6, 1)), ValueError, "bias must have 1 dimension"),
    (dict(bias=torch.tensor(1.0)), ValueError, "bias must have 1 dimension"),
    (dict(weight=W.double()), TypeError, "f32 and f64"),
    (dict(bias=B.half()), TypeError, "f32 and f16"),
    (dict(input=X.int()), TypeError, "input is a tensor of torch.int32"),
    (dict(weight=W.to(torch.complex64)), TypeError, "weight is a tensor of torch.complex64"),
    (dict(input=X.to_sparse()), (TypeError, RuntimeError), None),
    (dict(input=None), TypeError, "input must be a tensor, got NoneType"),
    (dict(weight=[1.0]), TypeError, "weight must be a tensor, got list"),
    (dict(bias=3), TypeError, "bias must be a tensor, got int"),
    (dict(precision="low"), ValueError, "precision must be one of highest, high, medium, got 'low'"),
    (dict(input=X.numpy()), TypeError, "got ndarray"),
]


@pytest.mark.parametrize("change, kind, message", REFUSED, ids=[str(i) for i in range(len(REFUSED))])
def test_refused(change, kind, message):
    with pytest.raises(kind, match=message) as caught:
        voxgrads("conv2d")(**{"input": X, "weight": W, "bias": B, **change})
    if message:
        assert str(caught.value).startswith(("conv2d: ", "precision ")), caught.value


@pytest.mark.parametrize("change", [dict(output_padding=2), dict(output_padding=-1), dict(output_padding=(0, 1, 0)),
                                    dict(padding=9), dict(groups=4)])
def test_refused_when_transposed(change):
    with pytest.raises(ValueError, match="conv_transpose2d: "):
        voxgrads("conv_transpose2d")(X, W.transpose(0, 1), B, **{"stride": 2, **change})


@pytest.mark.parametrize("output_padding", [2, -1, (0, 2)])
def test_output_padding_is_named(output_padding):
    with pytest.raises(ValueError, match="conv_transpose2d: output_padding must be >= 0 and smaller than stride or "
                                         r"dilation, got \(.*\) with stride \(2, 2\) and dilation \(1, 1\)"):
        voxgrads("conv_transpose2d")(X, W.transpose(0, 1), stride=2, output_padding=output_padding)


@pytest.mark.parametrize("name", ["conv2d", "conv_transpose2d"])
def test_a_padding_that_overflows_is_named(name):
    weight = W if name == "conv2d" else W.transpose(0, 1)
    with pytest.raises(ValueError, match=rf"{name}: padding must be below 2\^62 on every axis, got \(0, 46116"):
        voxgrads(name)(X, weight, padding=(0, 2**62))


def test_sizes_that_overflow_or_exceed_memory():
    x = torch.ones(1, 1, 1).expand(1, 1, 2**40)
    with pytest.raises((RuntimeError, MemoryError, ValueError)):
        voxgrads("conv_transpose1d")(x, torch.ones(1, 2**20, 1))
    with pytest.raises((RuntimeError, MemoryError, ValueError)):
        voxgrads("conv_transpose1d")(x, torch.ones(1, 1, 1), stride=2**30)


def test_other_devices_are_refused():
    meta = torch.ones(2, 4, 5, 5, device="meta")
    if voxgrad.torch._version >= (2, 4):
        assert voxgrads("conv2d")(meta, W.to("meta")).shape == (2, 6, 3, 3)  # shapes only, as in PyTorch
    else:
        with pytest.raises(RuntimeError, match="input is on meta; voxgrad computes on cpu and cuda"):
            voxgrads("conv2d")(meta, W.to("meta"))


@pytest.mark.skipif(not torch.cuda.is_available() or voxgrad.has_cuda(), reason="needs a GPU and voxgrad without CUDA")
def test_cuda_tensors_are_refused_by_a_build_without_cuda():
    with pytest.raises(RuntimeError, match="conv2d: this build of voxgrad has no CUDA"):
        voxgrads("conv2d")(X.cuda(), W.cuda())


@pytest.mark.skipif(why_no_cuda() is None, reason="voxgrad and this machine have CUDA")
def test_without_cuda_every_call_says_so():
    from voxgrad.torch import _ops
    on_cuda = (torch.float32, torch.device("cuda", 0), (1, 1, 3), torch.strided)
    with pytest.raises(RuntimeError, match="conv1d: .*(this build of voxgrad has no CUDA|no usable CUDA device)"):
        _ops._convolution(on_cuda, on_cuda, None, (1,), (1,), (0,), (1,), 1, False, "highest")
    with pytest.raises(RuntimeError, match="no CUDA|no usable CUDA device"):
        voxgrad.empty_cache()
    with pytest.raises(RuntimeError, match="no CUDA|no usable CUDA device"):
        voxgrad.memory()


def test_ops_refuse_what_the_functions_never_pass():
    """The ops of torch.library are reachable by name, so they check their arguments themselves."""
    from voxgrad.torch import _ops
    ones = (1, 1)
    for call in (
            lambda: _ops.convolution(X, W, None, (3,), ones, (0, 0), ones, 1, False, "highest"),
            lambda: _ops.convolution(X, W, None, (4, 4), ones, (0, 0), ones, 1, False, "highest"),
            lambda: _ops.convolution(X, W[0, 0, 0], None, (), (), (), (), 1, False, "highest"),
            lambda: _ops.convolution(X, W, None, (3, 3), ones, (0, 0), ones, 1, False, "exact"),
            lambda: _ops.convolution_weight_grad(X, X, (3, 3), ones, (0, 0), ones, 1, False, False, "highest"),
            lambda: _ops.convolution_weight_grad(X, X[:1, :, :3, :3], (3, 3), ones, (0, 0), ones, 1, False, True,
                                                 "highest"),
            lambda: _ops.convolution_weight_grad(X, X[0, :, :3, :3], (3, 3), ones, (0, 0), ones, 1, False, True,
                                                 "highest"),
            lambda: _ops.convolution_weight_grad(X, X[0, 0], (3, 3), ones, (0, 0), ones, 1, False, True, "highest")):
        with pytest.raises((ValueError, KeyError, RuntimeError, IndexError)):
            call()


def test_threads_out_of_range():
    with pytest.raises(ValueError, match="1 to 1024"):
        voxgrad.set_num_threads(0)


def run_python(code, **environment):
    return subprocess.run([sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True,
                          text=True)


def test_import_without_the_library_says_what_to_do():
    result = run_python("import voxgrad", VOXGRAD_LIBRARY="/nowhere/libvoxgrad_python.so")
    assert result.returncode != 0
    assert "ImportError: voxgrad: cannot load its library" in result.stderr and "pip install" in result.stderr


@pytest.mark.parametrize("version", ["1.12.1", "2.0.0", "2.3.1+cpu"])
def test_other_versions_of_pytorch_are_refused_by_name(version):
    result = run_python(f"import torch; torch.__version__ = '{version}'; import voxgrad.torch")
    assert result.returncode != 0
    assert f"ImportError: voxgrad.torch: PyTorch {version} is not supported" in result.stderr


def test_whole_numbers_of_any_kind():
    expected = voxgrads("conv2d")(X, W, stride=2)
    for stride in (np.int64(2), torch.tensor(2), (2, torch.tensor(2)), [2], (np.int32(2), 2)):
        assert torch.equal(voxgrads("conv2d")(X, W, stride=stride), expected)


@pytest.mark.parametrize("call, message", [
    (lambda: voxgrad.set_num_threads("3"), "threads must be a whole number from 1 to 1024, got '3'"),
    (lambda: voxgrad.set_num_threads(2**32 + 1), "from 1 to 1024"),
    (lambda: voxgrad.memory(2**32), "device must be a number, 'cuda'"),
    (lambda: voxgrad.empty_cache("cuda:x"), "device must be a number, 'cuda'"),
])
def test_numbers_that_do_not_fit(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.skipif(voxgrad.torch._version < (2, 4), reason="PyTorch 1.13 has no fake kernels")
@pytest.mark.parametrize("change, message", [
    (dict(input=torch.ones(2, 5, 5, 5)), "input has 5 channels, weight and groups want 4"),
    (dict(bias=torch.ones(7)), r"bias must have shape \(6,\), got \(7,\)"),
])
def test_tensors_without_memory_are_checked(change, message):
    operands = {"input": X, "weight": W, "bias": B, **change}
    with pytest.raises(ValueError, match=message):
        voxgrads("conv2d")(**{name: tensor.to("meta") for name, tensor in operands.items()})
