"""voxgrad.torch.functional against torch.nn.functional: values and gradients."""

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import voxgrad.torch
from support import FLOATING, assert_close, check_against_pytorch, voxgrads

NAMES = ["conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"]
CASES = json.loads((Path(__file__).parent.parent / "data" / "conv_transpose3d_cases.json").read_text())
# The most multiply-adds of a case: PyTorch's f64 then takes a fraction of a second.
LARGEST = {"cpu": 3e7, "cuda": 2e10}


def operands(name, device="cpu", dtype=torch.float32, groups=1, batch=(2,), kernel=(3, 2, 4), size=(5, 6, 7)):
    axes = int(name[-2])
    transposed = "transpose" in name
    weight = (4, 6 // groups) if transposed else (6, 4 // groups)
    tensors = (torch.randn(*batch, 4, *size[:axes]), torch.randn(*weight, *kernel[:axes]), torch.randn(6))
    return [t.to(device, dtype) for t in tensors]


@pytest.mark.parametrize("case", [c for c in CASES if c["legal"]], ids=lambda c: c["id"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["f64", "f32"])
def test_parameter_sets(case, dtype, device):
    if case["macs"] > LARGEST[device.type]:
        pytest.skip("too large for a reference in f64")
    c_in, c_out, groups = case["Cin"], case["Cout"], case["groups"]
    input = torch.randn(case["N"], c_in, *case["in"]).to(device, dtype)
    weight = torch.randn(c_in, c_out // groups, *case["k"]).to(device, dtype)
    bias = torch.randn(c_out).to(device, dtype) if case["bias"] else None
    check_against_pytorch("conv_transpose3d", input, weight, bias, stride=tuple(case["s"]), padding=tuple(case["p"]),
                          output_padding=tuple(case["op"]), dilation=tuple(case["dil"]), groups=groups)


@pytest.mark.parametrize("case", [c for c in CASES if not c["legal"]], ids=lambda c: c["id"])
def test_illegal_parameter_sets_are_refused(case):
    input = torch.empty(case["N"], case["Cin"], *case["in"])
    weight = torch.empty(case["Cin"], case["Cout"] // case["groups"], *case["k"])
    with pytest.raises(ValueError, match="conv_transpose3d: "):
        voxgrads("conv_transpose3d")(input, weight, None, case["s"], case["p"], case["op"], case["groups"],
                                     case["dil"])


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_every_function_and_dtype(name, dtype, device):
    options = dict(stride=2, padding=1, dilation=2, groups=2)
    if "transpose" in name:
        options["output_padding"] = 1
    check_against_pytorch(name, *operands(name, device, dtype, groups=2), **options)


@pytest.mark.parametrize("name", NAMES)
def test_one_number_per_axis_and_no_bias(name, device):
    axes = int(name[-2])
    options = dict(stride=(2, 1, 3)[:axes], padding=[1, 0, 2][:axes], dilation=(1, 2, 1)[:axes])
    input, weight, _ = operands(name, device)
    check_against_pytorch(name, input, weight, None, **options)


@pytest.mark.parametrize("name", NAMES)
def test_input_without_a_batch(name, device):
    check_against_pytorch(name, *operands(name, device, batch=()), stride=2, padding=1)


def test_output_padding_as_large_as_the_stride(device):
    # Then conv3d of the result's gradient alone has more cells than the input.
    check_against_pytorch("conv_transpose3d", *operands("conv_transpose3d", device, torch.float64), stride=2,
                          dilation=4, output_padding=3)


@pytest.mark.parametrize("name", ["conv1d", "conv2d", "conv3d"])
@pytest.mark.parametrize("padding", ["same", "valid"])
def test_paddings_by_name(name, padding, device):
    check_against_pytorch(name, *operands(name, device), padding=padding, dilation=1)
    check_against_pytorch(name, *operands(name, device, batch=()), padding=padding, dilation=2)


def test_empty_batch(device):
    for name in NAMES:
        input, weight, bias = operands(name, device, batch=(0,))
        for t in (input, weight, bias):
            t.requires_grad_()
        result = voxgrads(name)(input, weight, bias)
        assert result.shape == getattr(F, name)(input.cpu(), weight.cpu(), bias.cpu()).shape
        result.sum().backward()
        assert input.grad.shape == input.shape
        assert weight.grad.abs().max() == 0 and bias.grad.abs().max() == 0


def layouts(tensor):
    yield "contiguous", tensor
    if tensor.dim() >= 4:
        formats = {4: torch.channels_last, 5: torch.channels_last_3d}
        yield "channels_last", tensor.to(memory_format=formats[tensor.dim()])
    yield "permuted", tensor.transpose(0, -1).contiguous().transpose(0, -1)
    wide = torch.randn(*tensor.shape[:-1], 2 * tensor.shape[-1] + 1).to(tensor)
    wide[..., 1::2] = tensor
    yield "every second, at an odd address", wide[..., 1::2]
    yield "expanded", tensor[..., :1].expand_as(tensor)
    yield "negated lazily", torch.complex(tensor.double(), -tensor.double()).conj().imag.to(tensor)
    shifted = torch.empty(tensor.numel() + 1).to(tensor)
    shifted[1:] = tensor.flatten()
    yield "dense, at an odd address", shifted[1:].view(tensor.shape)


@pytest.mark.parametrize("name", ["conv2d", "conv3d", "conv_transpose3d"])
def test_memory_layouts(name, device):
    input, weight, bias = operands(name, device, torch.float64)
    for what, x in layouts(input):
        assert_close(voxgrads(name)(x, weight, bias), getattr(F, name)(x.cpu(), weight.cpu(), bias.cpu()), what)
    for what, w in layouts(weight):
        assert_close(voxgrads(name)(input, w, bias), getattr(F, name)(input.cpu(), w.cpu(), bias.cpu()), what)
    assert_close(voxgrads(name)(input, weight, bias.flip(0).neg()[::1]),
                 getattr(F, name)(input.cpu(), weight.cpu(), -bias.cpu().flip(0)))
    lazily_negative = torch.complex(input, input).conj().imag
    assert lazily_negative.is_neg()
    assert_close(voxgrads(name)(lazily_negative, weight), getattr(F, name)(-input.cpu(), weight.cpu()))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_gives_the_dtypes_of_pytorch(name, dtype, device):
    if device.type == "cpu" and dtype is torch.float16 and voxgrad.torch._version < (2, 4):
        pytest.skip("autocast on the CPU has only bfloat16 in this PyTorch")
    input, weight, bias = operands(name, device)
    for t in (input, weight, bias):
        t.requires_grad_()
    with torch.autocast(device.type, dtype):
        result, pytorchs = (f(input, weight, bias, stride=2) for f in (voxgrads(name), getattr(F, name)))
        doubles = [t.detach().double() for t in (input, weight, bias)]
        assert voxgrads(name)(*doubles).dtype == torch.float64
    if voxgrad.torch._version >= (2, 4):  # 1.13 does not list the transposed ones for the CPU
        assert result.dtype == pytorchs.dtype
    assert result.dtype == dtype
    result.float().sum().backward()
    assert input.grad.dtype == weight.grad.dtype == bias.grad.dtype == torch.float32
    with torch.no_grad():
        rounded = getattr(F, name)(*(t.to(dtype).double().cpu() for t in (input, weight, bias)), stride=2)
    assert_close(result, rounded)


@pytest.mark.parametrize("precision, limit", [("highest", 1e-5), ("high", 2e-3), ("medium", 2e-2)])
def test_precision(precision, limit, device):
    input, weight, bias = (t.requires_grad_() for t in operands("conv_transpose3d", device))
    expected = F.conv_transpose3d(*(t.detach().double().cpu() for t in (input, weight, bias)), stride=2)
    result = voxgrads("conv_transpose3d")(input, weight, bias, stride=2, precision=precision)
    assert_close(result, expected, limit=limit)
    assert result.grad_fn is not None
    result.sum().backward()


def test_precision_of_argument_context_thread_and_process(monkeypatch):
    from concurrent.futures import ThreadPoolExecutor

    from voxgrad.torch import _ops
    seen = []
    compute = _ops.convolution
    monkeypatch.setattr(_ops, "convolution", lambda *a: (seen.append(a[-1]), compute(*a))[1])
    conv = voxgrad.torch.Conv1d(1, 1, 1)
    precise = voxgrad.torch.Conv1d(1, 1, 1, precision="highest")
    x = torch.ones(1, 1, 3)
    try:
        conv(x)
        with voxgrad.torch.precision("high"):
            conv(x)
            with voxgrad.torch.precision("medium"):
                conv(x)
            ThreadPoolExecutor(1).submit(conv, x).result()
            precise(x)
        voxgrad.torch.set_precision("medium")
        conv(x)
    finally:
        voxgrad.torch.set_precision("highest")
    assert seen == ["highest", "high", "medium", "highest", "highest", "medium"]
    for wrong in (lambda: voxgrad.torch.precision("low"), lambda: voxgrad.torch.set_precision(1),
                  lambda: voxgrad.torch.Conv1d(1, 1, 1, precision="tf32")):
        with pytest.raises(ValueError, match="highest, high, medium"):
            wrong()
