"""voxgrad, through the C ABI of shim.cpp: tensors, ops by name, gradients."""

import ctypes
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_int64, c_void_p

import torch

DTYPES = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16", torch.float16: "f16",
          torch.int64: "i64", torch.uint8: "u8", torch.bool: "bool"}
_TORCH = {name: dtype for dtype, name in DTYPES.items()}
NONE, TENSOR, INTEGER, REAL, TEXT, INTEGERS, REALS, TENSORS = range(8)  # VoxKind


class Inexpressible(Exception):
    """voxgrad has no such call: an argument, a dtype or an overload that its op does not have."""


class VoxError(Exception):
    """A vox::Error; `kind` is its class."""

    def __init__(self, kind, message):
        super().__init__(f"{kind}: {message}")
        self.kind, self.message = kind, message


class WildError(Exception):
    """An exception that is no vox::Error got out of an op."""


class _Argument(ctypes.Structure):
    _fields_ = [("kind", c_int), ("count", c_int64), ("integer", c_int64), ("real", c_double), ("data", c_void_p)]


_library = None
_device = "cpu"


def load(path, device):
    """Loads the shim. Its threads begin with the first op, so a process may fork before."""
    global _library, _device
    _library, _device = ctypes.CDLL(str(path)), device
    for function in ("threads", "make", "require_grad", "requires_grad", "describe", "read", "call", "grad", "free"):
        getattr(_library, "vox_" + function).restype = c_char_p


def _shim(function, *arguments):
    answer = getattr(_library, "vox_" + function)(*arguments)
    if answer is None:
        return
    kind, _, message = answer.decode(errors="replace").partition(": ")
    if kind == "Inexpressible":
        raise Inexpressible(message)
    if kind.endswith("Error"):
        raise VoxError(kind, message)
    raise WildError(f"{kind}: {message}")


def set_threads(n):
    _shim("threads", c_int(n))


class Tensor:
    """A handle on a vox::Tensor."""

    def __init__(self, handle):
        self._handle = handle
        dtype, rank, sizes, strides = c_char_p(), c_int64(), (c_int64 * 8)(), (c_int64 * 8)()
        _shim("describe", handle, byref(dtype), byref(rank), sizes, strides)
        self.dtype, self.shape = _TORCH[dtype.value.decode()], tuple(sizes[:rank.value])
        self.strides = tuple(strides[:rank.value])

    def __del__(self):
        _shim("free", self._handle)

    @property
    def rank(self):
        return len(self.shape)

    @property
    def requires_grad(self):
        result = c_int()
        _shim("requires_grad", self._handle, byref(result))
        return bool(result.value)

    def torch(self):
        """A copy of the elements."""
        # Ones first: otherwise unwritten memory could hold the right zeros by chance.
        copy = torch.ones(self.shape, dtype=self.dtype, device=_device)
        if _device == "cuda":
            torch.cuda.synchronize()
        _shim("read", self._handle, c_void_p(copy.data_ptr()))
        return copy


def tensor(t, requires_grad=False):
    """A leaf with the elements, sizes, strides and alignment of a torch tensor."""
    if t.dtype not in DTYPES:
        raise Inexpressible(f"dtype {t.dtype}")
    if t.dim() > 8:
        raise Inexpressible(f"a tensor of {t.dim()} dimensions")
    if _device == "cuda":
        t = t.to("cuda")
        torch.cuda.synchronize()
    handle, sizes = c_void_p(), (c_int64 * 8)
    _shim("make", c_void_p(t.data_ptr()), DTYPES[t.dtype].encode(), c_int64(t.dim()), sizes(*t.shape),
          sizes(*t.stride()), c_int64(t.storage_offset() % 8), c_int(_device == "cuda"), byref(handle))
    result = Tensor(handle)
    if requires_grad:
        _shim("require_grad", handle)
    return result


def _handles(tensors):
    return (c_void_p * len(tensors))(*[t._handle if t is not None else None for t in tensors])


def _int64(value):
    if not -2**63 <= value < 2**63:
        raise Inexpressible(f"{value} is no int64_t")
    return value


def _argument(value):
    """The value as an argument, and what must live as long."""
    if value is None:
        return _Argument(kind=NONE), None
    if isinstance(value, Tensor):
        return _Argument(kind=TENSOR, data=value._handle), value
    if isinstance(value, (bool, int)):
        return _Argument(kind=INTEGER, integer=_int64(int(value))), None
    if isinstance(value, float):
        return _Argument(kind=REAL, real=value), None
    if isinstance(value, torch.dtype):
        if value not in DTYPES:
            raise Inexpressible(f"dtype {value}")
        value = DTYPES[value]
    if isinstance(value, str):
        buffer = ctypes.create_string_buffer(value.encode())
        return _Argument(kind=TEXT, data=ctypes.addressof(buffer)), buffer
    if isinstance(value, (tuple, list)):
        if all(isinstance(v, int) for v in value):
            kind, array = INTEGERS, (c_int64 * len(value))(*map(_int64, value))
        elif all(isinstance(v, (int, float)) for v in value):
            kind, array = REALS, (c_double * len(value))(*value)
        elif all(isinstance(v, Tensor) for v in value):
            kind, array = TENSORS, _handles(value)
        else:
            raise Inexpressible(f"a list of {[type(v).__name__ for v in value]}")
        return _Argument(kind=kind, count=len(value), data=ctypes.addressof(array)), (array, value)
    raise Inexpressible(f"an argument of type {type(value).__name__}")


def call(name, *values):
    """All results of an op."""
    arguments = [_argument(v) for v in values]
    array = (_Argument * len(arguments))(*[a for a, _ in arguments])
    results, count = (c_void_p * 8)(), c_int64(8)
    _shim("call", name.encode(), array, c_int64(len(arguments)), results, byref(count))
    return [Tensor(c_void_p(h)) for h in results[:count.value]]


def grad(outputs, grad_outputs, inputs):
    """vox::grad with create_graph; None for an input that no output depends on."""
    results = (c_void_p * len(inputs))()
    _shim("grad", _handles(outputs), _handles(grad_outputs), c_int64(len(outputs)), _handles(inputs),
          c_int64(len(inputs)), results)
    return [Tensor(c_void_p(h)) if h else None for h in results]


class _Ops:
    """`vox.conv3d(...)` calls the op of that name and returns its result, or the list of them."""

    def __getattr__(self, name):
        def op(*values):
            results = call(name, *values)
            return results[0] if len(results) == 1 else results
        return op


vox = _Ops()
