"""PyTorch's side: its databases of samples, and the layouts and dtypes in which they are tried."""

import os
import random
import sys
import types
import unittest
import warnings
import zlib

import torch

FLOATING = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
WHOLE = (torch.int64, torch.uint8, torch.bool)
LARGEST = 5000  # elements of a sample
LAYOUTS = ("given", "strided", "transposed", "expanded", "empty")


class Sample:
    """The arguments of one call, as PyTorch's op takes them."""

    def __init__(self, input, args, kwargs, source="sample"):
        self.input, self.args, self.kwargs, self.source = input, tuple(args), dict(kwargs), source

    def map(self, f):
        """The same call with f(t) in the place of each tensor t."""
        return Sample(map_tensors(f, self.input), map_tensors(f, self.args), map_tensors(f, self.kwargs), self.source)

    def call(self, f):
        return f(self.input, *self.args, **self.kwargs)

    def tensors(self):
        found = []
        self.map(lambda t: found.append(t))
        return found

    def __str__(self):
        values = [text_of(v) for v in (self.input, *self.args)]
        return ", ".join(values + [f"{k}={text_of(v)}" for k, v in self.kwargs.items()])


def map_tensors(f, value):
    if isinstance(value, torch.Tensor):
        return f(value)
    if isinstance(value, (tuple, list)) and not isinstance(value, torch.Size):
        return type(value)(map_tensors(f, v) for v in value)
    if isinstance(value, dict):
        return {k: map_tensors(f, v) for k, v in value.items()}
    return value


def text_of(value):
    if isinstance(value, torch.Tensor):
        few = f"={value.detach().flatten().tolist()}" if 0 < value.numel() <= 4 else ""
        strides = "" if value.is_contiguous() else f" strides {tuple(value.stride())}"
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}{strides}{few}"
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(map(text_of, value)) + "]"
    return repr(value)


def import_databases():
    """op_db by "name" and "name:variant", and module_db. PyTorch computes on the CPU, whatever voxgrad runs on, and
    must not ask for GPUs: a process that has asked cannot use CUDA after a fork. Debian has no package expecttest, of
    which PyTorch's tests use two names while they are imported."""
    try:
        import expecttest  # noqa: F401
    except ImportError:
        sys.modules["expecttest"] = types.SimpleNamespace(TestCase=unittest.TestCase, ACCEPT=False)
    warnings.simplefilter("ignore")
    os.environ["NUMBA_DISABLE_CUDA"] = "1"  # PyTorch's tests import Numba where it is installed, which asks too
    torch.cuda.is_available, torch.cuda.device_count = (lambda: False), (lambda: 0)
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.common_modules import module_db
    ops = {op.name + (":" + op.variant_test_name if op.variant_test_name else ""): op for op in op_db}
    return ops, {module.name: module for module in module_db}


def has(entry, databases):
    """Whether this version of PyTorch has samples for the entry."""
    ops, modules = databases
    return entry.of in ops or entry.of.removeprefix("module:") in modules


def seed(text):
    number = zlib.crc32(text.encode())
    random.seed(number)
    torch.manual_seed(number)


def module_samples(info, dtype):
    for training in (True, False):
        for m in info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training):
            constructor, forward = m.constructor_input, m.forward_input
            layer = info.module_cls(*constructor.args, **constructor.kwargs, dtype=dtype)
            names = ["stride", "padding", "groups", "dilation"] + (["output_padding"] if layer.transposed else [])
            if layer.padding_mode == "zeros":
                yield Sample(forward.args[0], (layer.weight, layer.bias), {n: getattr(layer, n) for n in names})


def samples(entry, databases, dtype):
    """PyTorch's samples for the entry. Floating ones are made in f32 and rounded by `prepare`."""
    seed(f"{entry.name} {dtype}")
    ops, modules = databases
    sampled = dtype if entry.own_dtype or dtype in WHOLE else torch.float32
    if entry.of.startswith("module:"):
        if dtype in FLOATING:
            yield from module_samples(modules[entry.of.removeprefix("module:")], sampled)
        return
    info = ops[entry.of]
    if dtype in WHOLE and not info.supports_dtype(dtype, "cpu"):
        return
    try:
        # Where an op has them: its samples and more, some of which are as large as PyTorch's own loops need.
        made = list(info.reference_inputs("cpu", sampled, requires_grad=dtype in FLOATING))
    except (NotImplementedError, RuntimeError, ValueError):  # PyTorch's mistakes, for some dtypes
        seed(f"{entry.name} {dtype}")
        try:
            made = list(info.sample_inputs("cpu", sampled, requires_grad=dtype in FLOATING))
        except RuntimeError as error:
            assert "not implemented for" in str(error), error
            return
    for s in made:
        sample = Sample(s.input, s.args, s.kwargs)
        if sum(t.numel() for t in sample.tensors()) <= LARGEST:
            yield from adapted(entry, sample)


def adapted(entry, sample):
    """The sample for the entry; none, if it makes no sense for it."""
    values = entry.adapt(sample) if entry.adapt else (sample.input, sample.args, sample.kwargs)
    if values is not None:
        yield Sample(*values, sample.source)


def error_samples(entry, databases):
    """Samples that PyTorch refuses; (sample, what it says)."""
    info = databases[0].get(entry.of)
    if info is None or entry.adapt or not getattr(info, "error_inputs_func", None):
        return
    seed(entry.name)
    for e in info.error_inputs("cpu"):
        s = e.sample_input
        yield Sample(s.input, s.args, s.kwargs, "error"), e.error_regex


def prepare(sample, dtype, layout, number):
    """The sample with its floating tensors rounded to the dtype, in the layout, as leaves."""
    def place(t):
        x = t.detach()
        if dtype in FLOATING and x.is_floating_point():
            x = x.to(dtype)
        x = LAY_OUT[layout](x, number)
        return x.requires_grad_(True) if t.requires_grad and x.is_floating_point() else x
    return sample.map(place)


def strided(t, _):
    """Every second element of the last dimension of memory that begins one element later."""
    if t.dim() == 0:
        return torch.stack([t, t])[1]
    return torch.stack([t, t], -1).flatten(-2)[..., 1::2] if t.numel() else t


def transposed(t, _):
    """The dimensions in reverse order in memory."""
    order = tuple(reversed(range(t.dim())))
    return t.permute(order).contiguous().permute(order)


def expanded(t, number):
    """The first slice of one dimension, repeated with stride 0."""
    if t.dim() == 0 or t.numel() == 0:
        return t
    dim = number % t.dim()
    return t.narrow(dim, 0, 1).contiguous().expand_as(t)


def empty(t, number):
    """Nothing along the first or last dimension."""
    if t.dim() == 0:
        return t
    return t.narrow(0 if number % 2 else -1, 0, 0).clone()


LAY_OUT = {"given": lambda t, _: t, "strided": strided, "transposed": transposed, "expanded": expanded,
           "empty": empty}

# ---- Special values -----------------------------------------------------------------------------------------------


def special_values(dtype):
    if dtype == torch.bool:
        return torch.tensor([False, True])
    if not dtype.is_floating_point:
        i = torch.iinfo(dtype)
        values = [i.min, i.min + 1, 0, 1, 2, 3, 7, i.max // 2, i.max // 2 + 1, i.max - 1, i.max]
        return torch.tensor(values, dtype=dtype)
    f = torch.finfo(dtype)
    positive = [0.0, f.tiny, f.tiny / 2, f.tiny * f.eps, f.eps, 0.5, 1.0, 1.5, 2.0, 3.0, 10.0, 100.0, f.max]
    values = positive + [float("inf")]
    return torch.tensor([float("nan")] + values + [-v for v in values], dtype=torch.float64).to(dtype)


def special_samples(entry, databases, dtype):
    """Special values for ops of one or two operands and for reductions, by the classes of OpInfo."""
    info = databases[0].get(entry.of)
    kind = type(info).__name__
    values = special_values(dtype)
    grad = dtype in FLOATING and entry.gradients

    def leaf(t):
        return t.clone().requires_grad_(grad)

    if info is None or (dtype in WHOLE and not info.supports_dtype(dtype, "cpu")):
        return
    if kind == "UnaryUfuncInfo" and entry.name != "fill":
        yield from adapted(entry, Sample(leaf(values), (), {}, "special"))
    if kind == "BinaryUfuncInfo":
        a, b = torch.meshgrid(values, values, indexing="ij")
        if "div" not in entry.name or dtype in FLOATING:
            extra = {"rounding_mode": None} if entry.of.startswith("div:") else {}
            yield Sample(leaf(a.flatten()), (leaf(b.flatten()),), extra, "special")
    if kind == "ReductionOpInfo" or entry.name in ("softmax", "log_softmax"):
        pairs = torch.stack(torch.meshgrid(values, values, indexing="ij"), -1).flatten(0, 1)
        yield Sample(leaf(pairs), (1,), {}, "special")
