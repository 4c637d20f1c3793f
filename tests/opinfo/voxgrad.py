"""voxgrad, through its C interface (capi/): tensors, ops by name, gradients."""

import ctypes
import sys
from ctypes import byref, c_char_p, c_int, c_int64, c_void_p
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "capi"))
import capi  # noqa: E402
from capi import Inexpressible, VoxError, WildError  # noqa: E402, F401

DTYPES = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16", torch.float16: "f16",
          torch.int64: "i64", torch.uint8: "u8", torch.bool: "bool"}
_TORCH = {name: dtype for dtype, name in DTYPES.items()}

_library = None
_device = "cpu"


def load(path, device):
    """Loads the library. Its threads begin with the first op, so a process may fork before."""
    global _library, _device
    _library, _device = capi.Library(path), device


def set_threads(n):
    _library.call("set_num_threads", c_int(n))


class Tensor(capi.Handle):
    """A handle on a vox::Tensor."""

    def __init__(self, handle):
        self._handle = handle
        dtype, rank, sizes, strides, grad = c_char_p(), c_int64(), (c_int64 * 8)(), (c_int64 * 8)(), c_int()
        _library.call("tensor_describe", handle, byref(dtype), byref(rank), sizes, strides, byref(grad))
        self.dtype, self.shape = _TORCH[dtype.value.decode()], tuple(sizes[:rank.value])
        self.strides, self.requires_grad = tuple(strides[:rank.value]), bool(grad.value)

    def __del__(self):
        _library.loaded.voxgrad_tensor_free(self._handle)

    @property
    def rank(self):
        return len(self.shape)

    def torch(self):
        """A copy of the elements."""
        # Ones first: memory that nobody writes must not hold the right zeros by chance.
        copy = torch.ones(self.shape, dtype=self.dtype)
        _library.call("tensor_read", self._handle, c_void_p(copy.data_ptr()))
        return copy


def tensor(t, requires_grad=False):
    """A leaf with the elements, sizes, strides and alignment of a torch tensor."""
    if t.dtype not in DTYPES:
        raise Inexpressible(f"dtype {t.dtype}")
    if t.dim() > 8:
        raise Inexpressible(f"a tensor of {t.dim()} dimensions")
    handle, sizes = c_void_p(), (c_int64 * 8)
    _library.call("tensor_make", c_void_p(t.data_ptr()), DTYPES[t.dtype].encode(), c_int64(t.dim()), sizes(*t.shape),
                  sizes(*t.stride()), c_int64(t.storage_offset() % 8), _device.encode(), byref(handle))
    if requires_grad:
        _library.call("tensor_require_grad", handle)
    return Tensor(handle)


def _plain(value):
    """The value without types of torch."""
    if isinstance(value, torch.dtype):
        if value not in DTYPES:
            raise Inexpressible(f"dtype {value}")
        return DTYPES[value]
    return value


def call(name, *values):
    """All results of an op."""
    arguments = capi.arguments([_plain(v) for v in values])
    results, count = (c_void_p * 8)(), c_int64(8)
    _library.call("call", name.encode(), arguments, c_int64(len(arguments)), results, byref(count))
    return [Tensor(c_void_p(h)) for h in results[:count.value]]


def grad(outputs, grad_outputs, inputs, create_graph=True, retain_graph=True):
    """vox::grad; None for an input that no output depends on."""
    results = (c_void_p * len(inputs))()
    _library.call("grad", capi.handles(outputs), capi.handles(grad_outputs), c_int64(len(outputs)),
                  capi.handles(inputs), c_int64(len(inputs)), c_int(create_graph), c_int(retain_graph), results)
    return [Tensor(c_void_p(h)) if h else None for h in results]


class _Ops:
    """`vox.conv3d(...)` calls the op of that name and returns its result, or the list of them."""

    def __getattr__(self, name):
        def op(*values):
            results = call(name, *values)
            return results[0] if len(results) == 1 else results
        return op


vox = _Ops()
