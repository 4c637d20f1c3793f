"""A library with voxgrad's C interface, loaded by ctypes: statuses as exceptions, values as arguments of ops.

This module knows no framework. Note [Values] in value.h says what an op takes.
"""

import ctypes
from ctypes import c_char_p, c_double, c_int, c_int64, c_void_p

NONE, TENSOR, INTEGER, REAL, TEXT, INTEGERS, REALS, TENSORS, RESULT = range(9)  # VoxgradKind
# By VoxgradStatus; the last two are no vox::Error.
ERRORS = ("", "ValueError", "ShapeError", "DTypeError", "DeviceError", "GradError", "CudaError", "OutOfMemoryError",
          "Error", "Inexpressible", "exception")


class Inexpressible(Exception):
    """voxgrad has no such call: an argument, a dtype or an overload that its op does not have."""


class VoxError(RuntimeError):
    """A vox::Error; `kind` is its class."""

    def __init__(self, kind, message):
        super().__init__(f"{kind}: {message}")
        self.kind, self.message = kind, message


class WildError(Exception):
    """An exception that is no vox::Error got out of an op."""


class Library:
    def __init__(self, path):
        self.loaded = ctypes.CDLL(str(path))
        self.loaded.voxgrad_last_error.restype = c_char_p
        self.loaded.voxgrad_tensor_free.restype = None

    def call(self, function, *arguments):
        status = getattr(self.loaded, "voxgrad_" + function)(*arguments)
        if status == 0:
            return
        kind, message = ERRORS[status], self.loaded.voxgrad_last_error().decode(errors="replace")
        if kind == "Inexpressible":
            raise Inexpressible(message)
        if kind == "exception":
            raise WildError(message)
        raise VoxError(kind, message)


class Handle:
    """What passes a tensor to an op: a pointer to a vox::Tensor."""

    _handle = None


class Result:
    """What passes the result of an earlier op to a later one in a program: its place among all of them."""

    place = 0


class Argument(ctypes.Structure):
    _fields_ = [("kind", c_int), ("count", c_int64), ("integer", c_int64), ("real", c_double), ("data", c_void_p)]


def int64(value):
    if not -2**63 <= value < 2**63:
        raise Inexpressible(f"{value} is no int64_t")
    return value


def handles(tensors):
    return (c_void_p * len(tensors))(*[t._handle if t is not None else None for t in tensors])


def _list(values):
    """Kind and array of a list."""
    if all(isinstance(v, int) for v in values):
        return INTEGERS, (c_int64 * len(values))(*map(int64, values))
    if all(isinstance(v, (int, float)) for v in values):
        return REALS, (c_double * len(values))(*values)
    if all(isinstance(v, Handle) for v in values):
        return TENSORS, handles(values)
    if all(isinstance(v, Result) for v in values):
        return RESULT, (c_int64 * len(values))(*[v.place for v in values])
    raise Inexpressible(f"a list of {[type(v).__name__ for v in values]}")


def _argument(value):
    """The value as an argument, and what must live as long."""
    if value is None:
        return Argument(kind=NONE), None
    if isinstance(value, Handle):
        return Argument(kind=TENSOR, data=value._handle), value
    if isinstance(value, Result):
        return Argument(kind=RESULT, integer=value.place), None
    if isinstance(value, int):
        return Argument(kind=INTEGER, integer=int64(int(value))), None
    if isinstance(value, float):
        return Argument(kind=REAL, real=value), None
    if isinstance(value, str):
        buffer = ctypes.create_string_buffer(value.encode())
        return Argument(kind=TEXT, data=ctypes.addressof(buffer)), buffer
    if isinstance(value, (tuple, list)):
        kind, array = _list(value)
        return Argument(kind=kind, count=len(value), data=ctypes.addressof(array)), (array, value)
    raise Inexpressible(f"an argument of type {type(value).__name__}")


def arguments(values):
    """An array of arguments, which keeps alive what they point to."""
    pairs = [_argument(v) for v in values]
    array = (Argument * len(pairs))(*[a for a, _ in pairs])
    array.kept = [kept for _, kept in pairs]
    return array
