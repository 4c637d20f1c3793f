"""voxgrad.Tensor: memory shared with NumPy, PyTorch, CuPy, JAX and others, by DLPack or the array interface.

Everything passes through DLPack's structures; for an array interface, this module fills one in. The borrower keeps the
lender's memory alive until it no longer needs it.
"""

import ctypes
import threading
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p

from ._library import _checked, _library, device_number

_CPU, _CUDA = 1, 2  # DLDeviceType
_READ_ONLY, _COPIED = 1, 2  # flags of DLPack
_KINDS = {"i": 0, "u": 1, "f": 2, "V": 3, "c": 5, "b": 6}  # DLDataTypeCode, by the character of NumPy
_DTYPES = {(2, 32): "f32", (2, 64): "f64", (4, 16): "bf16", (2, 16): "f16", (0, 64): "i64", (0, 32): "i32",
           (0, 16): "i16", (1, 16): "u16", (1, 8): "u8", (6, 8): "bool"}
_TYPESTRS = {"f32": "<f4", "f64": "<f8", "f16": "<f2", "i64": "<i8", "i32": "<i4", "i16": "<i2", "u16": "<u2",
             "u8": "|u1", "bool": "|b1"}
_DELETER = ctypes.CFUNCTYPE(None, c_void_p)
# The functions of VoxgradPython in _tensor.cpp.
_PYTHON = ("PyCapsule_IsValid", "PyCapsule_GetPointer", "Py_IsInitialized", "PyGILState_Ensure", "PyGILState_Release",
           "Py_DecRef")


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32),
                ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16), ("shape", POINTER(c_int64)),
                ("strides", POINTER(c_int64)), ("byte_offset", c_uint64)]


class _Managed(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = [("major", c_uint32), ("minor", c_uint32), ("manager_ctx", c_void_p), ("deleter", _DELETER),
                ("flags", c_uint64), ("tensor", _DLTensor)]


_python = ctypes.PyDLL(None)  # ctypes.pythonapi would share the types of its functions with other packages


def _address(function):
    return ctypes.cast(function, c_void_p).value


def _declare():
    library, python, handle, capsule = _library, _python, c_void_p, ctypes.py_object
    for name, arguments in {
            "tensor_borrow": [c_void_p, c_int, POINTER(handle)],
            "tensor_lend": [handle, c_int, POINTER(c_void_p), POINTER(c_void_p)],
            "tensor_copy": [handle, c_int, POINTER(handle)], "tensor_free": [handle],
            "device_of": [c_void_p, POINTER(c_int)], "current_stream": [c_int, POINTER(c_void_p)],
            "wait_for_stream": [c_int, c_void_p], "set_python": [c_void_p]}.items():
        getattr(library, "voxgrad_" + name).argtypes = arguments
    library.voxgrad_tensor_free.restype = library.voxgrad_set_python.restype = None
    for name, result, arguments in (("New", capsule, [c_void_p, c_char_p, c_void_p]), ("GetName", c_char_p, [capsule]),
                                    ("GetPointer", c_void_p, [capsule, c_char_p]),
                                    ("SetName", c_int, [capsule, c_char_p])):
        function = getattr(python, "PyCapsule_" + name)
        function.restype, function.argtypes = result, arguments
    python.Py_IncRef.argtypes = [capsule]
    library.voxgrad_set_python((c_void_p * len(_PYTHON))(*(_address(getattr(python, name)) for name in _PYTHON)))


_declare()
_destroy_capsule = _address(_library.voxgrad_destroy_capsule)
_release_owner = ctypes.cast(_library.voxgrad_release_owner, _DELETER)
# The names of unused and used capsules; the key says whether they are versioned. A capsule keeps a pointer to its name.
_NAMES = {False: (b"dltensor", b"used_dltensor"), True: (b"dltensor_versioned", b"used_dltensor_versioned")}

_no_elements = (c_int64 * 1)()  # an address for tensors without elements, as NumPy refuses null


def _call(function, *arguments, result=c_void_p):
    value = result()
    _checked(function(*arguments, byref(value)))
    return value.value


def _pointer(stream):
    return None if stream is None else byref(c_void_p(stream))


_capsules = threading.Lock()  # a capsule that several threads consume belongs to the first of them


def _borrow_capsule(capsule):
    with _capsules:
        name = _python.PyCapsule_GetName(capsule)
        for versioned, (unused, used) in _NAMES.items():
            if name == unused:
                managed = _python.PyCapsule_GetPointer(capsule, unused)
                handle = _call(_library.voxgrad_tensor_borrow, managed, versioned)
                _python.PyCapsule_SetName(capsule, used)
                return handle
    raise ValueError(f"from_dlpack: a capsule must be named dltensor or dltensor_versioned, and be unused; got {name}")


def _borrow_dlpack(source):
    if getattr(source, "is_neg", bool)():
        raise TypeError("Tensor: the source is a negative view of PyTorch, which DLPack cannot describe; lend "
                        "source.resolve_neg()")
    device_type, device = source.__dlpack_device__()
    options = {"stream": _call(_library.voxgrad_current_stream, device)} if device_type == _CUDA else {}
    try:
        capsule = source.__dlpack__(max_version=(1, 1), **options)
    except TypeError:  # a library from before max_version
        capsule = source.__dlpack__(**options)
    return _borrow_capsule(capsule)


def _borrow_interface(source, interface, on_cuda):
    """A handle on the memory that an array interface describes."""
    def refuse(what):
        raise TypeError(f"Tensor: the array interface of {type(source).__name__} {what}")

    if not isinstance(interface, dict):
        refuse(f"is {interface!r}, not a dict")
    kind, shape, data, strides = (interface.get(key) for key in ("typestr", "shape", "data", "strides"))
    if interface.get("mask") is not None or hasattr(source, "mask"):
        refuse("has a mask")
    if not isinstance(data, tuple) or len(data) != 2 or not isinstance(data[0], (int, type(None))):
        refuse("has no address")
    if not isinstance(kind, str) or not isinstance(shape, tuple) or not isinstance(strides, (tuple, type(None))):
        refuse(f"has typestr {kind!r}, shape {shape!r} and strides {strides!r}, not a str and tuples")
    if not kind[2:].isdecimal() or not 0 < int(kind[2:]) <= 16 or (kind[0] == ">" and kind[2:] != "1"):
        refuse(f"has elements of type {kind}; allowed are <f4, <f8, <f2, <i8, |u1 and |b1")
    if not all(abs(number) < 2**63 for number in (*shape, *(strides or ()))):
        refuse(f"has sizes that do not fit 64 bits, {shape}")
    size = int(kind[2:])
    managed = _Managed(1, 1, None, _release_owner, _READ_ONLY if data[1] else 0)
    tensor = managed.tensor
    tensor.data, tensor.device_type = data[0] or None, _CUDA if on_cuda else _CPU
    tensor.ndim, tensor.code, tensor.bits, tensor.lanes = len(shape), _KINDS.get(kind[1], 3), 8 * size, 1
    tensor.shape = sizes = (c_int64 * len(shape))(*shape)
    if strides is not None:
        if len(strides) != len(shape) or any(stride % size for stride in strides):
            refuse(f"has strides {strides}, not {len(shape)} multiples of {size} bytes")
        strides = tensor.strides = (c_int64 * len(shape))(*(stride // size for stride in strides))
    if on_cuda and tensor.data:
        tensor.device_id = _call(_library.voxgrad_device_of, tensor.data, result=c_int)
        if interface.get("stream") is not None:
            _checked(_library.voxgrad_wait_for_stream(tensor.device_id, interface["stream"]))
    owner = (managed, sizes, strides, source, interface)
    managed.manager_ctx = id(owner)
    handle = _call(_library.voxgrad_tensor_borrow, ctypes.addressof(managed), True)
    _python.Py_IncRef(owner)  # _release_owner undoes it
    return handle


class Tensor:
    """A tensor of voxgrad on the memory of `source`, which has one of these attributes:

        __array_interface__         NumPy arrays, for example
        __dlpack__                  tensors of PyTorch, arrays of JAX and CuPy
        __cuda_array_interface__    arrays of Numba

    Nothing is copied: both sides see each other's writes. clone() and to() copy.
    """

    def __init__(self, source):
        if isinstance(source, type):
            raise TypeError(f"Tensor: needs an object, got the class {source.__name__}")
        if hasattr(source, "__array_interface__"):
            handle = _borrow_interface(source, source.__array_interface__, False)
        elif hasattr(source, "__dlpack__"):
            handle = _borrow_dlpack(source)
        elif hasattr(source, "__cuda_array_interface__"):
            handle = _borrow_interface(source, source.__cuda_array_interface__, True)
        else:
            raise TypeError("Tensor: needs an object with __array_interface__, __dlpack__ or "
                            f"__cuda_array_interface__, got {type(source).__name__}")
        self._own(handle)

    @classmethod
    def _of(cls, handle):
        tensor = cls.__new__(cls)
        tensor._own(handle)
        return tensor

    def _own(self, handle):
        self.__del__()  # of an earlier handle, if __init__ is called again
        own = vars(self)
        own["_handle"] = handle
        managed = ctypes.cast(_call(_library.voxgrad_tensor_lend, handle, True, None), POINTER(_Managed)).contents
        try:
            lent = managed.tensor
            own.update(shape=tuple(lent.shape[:lent.ndim]), strides=tuple(lent.strides[:lent.ndim]),
                       dtype=_DTYPES[lent.code, lent.bits],
                       device="cpu" if lent.device_type == _CPU else f"cuda:{lent.device_id}",
                       read_only=bool(managed.flags & _READ_ONLY), _data=lent.data or 0,
                       _dlpack=(lent.device_type, lent.device_id))
        finally:
            managed.deleter(ctypes.addressof(managed))

    def __del__(self, free=_library.voxgrad_tensor_free):
        handle = vars(self).pop("_handle", None)
        if handle is not None:
            free(handle)

    def __setattr__(self, name, value):
        raise AttributeError(f"Tensor.{name}: the attributes of a tensor describe its memory and cannot be set")

    def __copy__(self):
        return from_dlpack(self)

    def __deepcopy__(self, memo):
        return self.clone()

    def __reduce__(self):
        raise TypeError("Tensor: cannot be pickled, because it shares memory; pickle numpy.asarray(tensor)")

    def __repr__(self):
        return f"voxgrad.Tensor(shape={self.shape}, dtype={self.dtype}, device={self.device})"

    def clone(self):
        """A dense copy of the elements."""
        return self._copy(-1 if self.device == "cpu" else self._dlpack[1])

    def to(self, device):
        """Itself if it is on `device`, which is "cpu", "cuda" or "cuda:1"; else a dense copy there."""
        target = -1 if str(device) == "cpu" else device_number("Tensor.to", device, numbers=False)
        if target == (-1 if self.device == "cpu" else self._dlpack[1]):
            return self
        return self._copy(target)

    def _copy(self, device):
        return Tensor._of(_call(_library.voxgrad_tensor_copy, self._handle, device))

    def __dlpack_device__(self):
        return self._dlpack

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """A capsule for from_dlpack() of another library. `stream` is the CUDA stream in which it uses the memory."""
        if dl_device is not None and tuple(dl_device) != self._dlpack:
            raise BufferError(f"Tensor.__dlpack__: the tensor is on {self.device}, which is not DLPack's device "
                              f"{tuple(dl_device)}; call to() first")
        versioned = max_version is not None and max_version[0] >= 1
        if copy:
            return self.clone()._lend(stream, versioned, _COPIED)
        if self.read_only and not versioned:
            raise BufferError("Tensor.__dlpack__: the memory is read-only, which DLPack before 1.0 cannot describe; "
                              "lend a clone()")
        return self._lend(stream, versioned, 0)

    def _lend(self, stream, versioned, flags):
        if self.device == "cpu":
            if stream is not None:
                raise ValueError(f"Tensor.__dlpack__: stream must be None for a tensor on the CPU, got {stream!r}")
        elif stream == 0 or (stream is not None and (type(stream) is not int or stream < -1)):
            raise ValueError("Tensor.__dlpack__: stream must be None, -1 (no order), 1, 2 or the address of a stream, "
                             f"got {stream!r}")
        else:
            stream = {None: 1, -1: None}.get(stream, stream)  # None means the legacy stream, whose number is 1
        managed = _call(_library.voxgrad_tensor_lend, self._handle, versioned, _pointer(stream))
        if versioned:
            _Managed.from_address(managed).flags |= flags
        return _python.PyCapsule_New(managed, _NAMES[versioned][0], _destroy_capsule)

    def _interface(self, name, on_cuda):
        if (self.device != "cpu") != on_cuda:
            raise AttributeError(f"Tensor.{name}: the tensor is on {self.device}")
        if self.dtype not in _TYPESTRS:
            raise AttributeError(f"Tensor.{name}: the array interface has no name for {self.dtype}; use DLPack")
        typestr = _TYPESTRS[self.dtype]
        return {"version": 3, "typestr": typestr, "shape": self.shape, "data": (self._data, self.read_only),
                "strides": tuple(stride * int(typestr[2:]) for stride in self.strides)}

    @property
    def __array_interface__(self):
        interface = self._interface("__array_interface__", False)
        return interface if self._data else {**interface, "data": (ctypes.addressof(_no_elements), self.read_only)}

    @property
    def __cuda_array_interface__(self):
        stream = {"stream": _call(_library.voxgrad_current_stream, self._dlpack[1])} if self.device != "cpu" else {}
        return {**self._interface("__cuda_array_interface__", True), **stream}


def from_dlpack(source):
    """A Tensor on the memory of `source`: an object with __dlpack__, or a capsule. Nothing is copied."""
    if hasattr(source, "__dlpack__"):
        return Tensor._of(_borrow_dlpack(source))
    if type(source).__name__ != "PyCapsule":
        raise TypeError(f"from_dlpack: needs an object with __dlpack__, or a capsule, got {type(source).__name__}")
    return Tensor._of(_borrow_capsule(source))
