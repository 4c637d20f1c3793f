"""The C ABI of _shim.cpp, loaded by ctypes: descriptions of convolutions, calls on addresses, exceptions.

This module knows no framework. Dtypes are voxgrad's names ("f32"), a device is None for the CPU or the number of a CUDA
device, and a tensor is an address. ctypes releases the GIL during calls.
"""

import ctypes
import os
import re
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_void_p
from functools import lru_cache
from pathlib import Path

# The numbers of vox::DType and vox::Float32Precision.
DTYPES = {"f32": 0, "f64": 1, "bf16": 5, "f16": 6}
PRECISIONS = {"highest": 0, "high": 1, "medium": 2}


class OutOfMemory(MemoryError):
    """An allocation of voxgrad that failed, on the host or on the GPU."""


_ERRORS = {1: ValueError, 2: ValueError, 3: TypeError, 7: OutOfMemory}  # by VoxgradStatus; others: RuntimeError


class _Operand(ctypes.Structure):
    _fields_ = [("rank", c_int32), ("dtype", c_int32), ("device", c_int32), ("sizes", c_int64 * 5)]


class Convolution(ctypes.Structure):
    """VoxgradConvolution. Nothing writes to it after describe(), so threads may share it."""

    _fields_ = [("axes", c_int32), ("transposed", c_int32), ("precision", c_int32),
                ("input", _Operand), ("weight", _Operand), ("bias", _Operand),
                ("output_size", c_int64 * 3), ("stride", c_int64 * 3), ("padding", c_int64 * 3),
                ("dilation", c_int64 * 3), ("groups", c_int64)]


def _load():
    # VOXGRAD_LIBRARY: a library in a build folder, for tests.
    path = os.environ.get("VOXGRAD_LIBRARY") or Path(__file__).with_name("libvoxgrad_python.so")
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise ImportError(f"voxgrad: cannot load its library: {error}; install the package with `pip install .`, or "
                          "set VOXGRAD_LIBRARY to the libvoxgrad_python.so of a build") from error
    if not hasattr(library, "voxgrad_last_error"):
        raise ImportError(f"voxgrad: {path}, which VOXGRAD_LIBRARY names, is not a libvoxgrad_python.so")
    library.voxgrad_last_error.restype = library.voxgrad_version.restype = c_char_p
    convolution = POINTER(Convolution)
    for name, arguments in {
            "check": [convolution],
            "convolution": [convolution, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p],
            "weight_grad": [convolution, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p],
            "set_num_threads": [c_int], "empty_cache": [c_int],
            "memory": [c_int, POINTER(c_int64), POINTER(c_int64)]}.items():
        getattr(library, "voxgrad_" + name).argtypes = arguments
    return library


_library = _load()
version = _library.voxgrad_version().decode()


def _checked(status):
    if status:
        raise _ERRORS.get(status, RuntimeError)(_library.voxgrad_last_error().decode(errors="replace"))


def name_of(axes, transposed):
    return f"conv{'_transpose' if transposed else ''}{axes}d"


def check_ranks(axes, transposed, input_shape, weight_shape):
    """Raises ValueError unless the ranks fit a convolution over `axes` axes, with or without a batch."""
    if len(input_shape) not in (axes + 1, axes + 2):
        raise ValueError(f"{name_of(axes, transposed)}: input must have {axes + 2} dimensions, or {axes + 1} without a "
                         f"batch, got shape {tuple(input_shape)}")
    if len(weight_shape) != axes + 2:
        raise ValueError(f"{name_of(axes, transposed)}: weight must have {axes + 2} dimensions, got shape "
                         f"{tuple(weight_shape)}")


def _operand(tensor):
    if tensor is None:
        return _Operand()
    shape, dtype, device = tensor
    return _Operand(len(shape), DTYPES[dtype], -1 if device is None else device, (c_int64 * 5)(*shape))


@lru_cache(maxsize=4096)
def describe(transposed, precision, input, weight, bias, output_size, stride, padding, dilation, groups):
    """The checked description of a convolution. Each tensor is a tuple of shape, dtype and device, or None."""
    axes = len(weight[0]) - 2
    if axes not in (1, 2, 3):
        raise ValueError(f"convolution: weight must have 3 to 5 dimensions, got shape {tuple(weight[0])}")
    check_ranks(axes, transposed, input[0], weight[0])
    if bias is not None and len(bias[0]) != 1:
        raise ValueError(f"{name_of(axes, transposed)}: bias must have 1 dimension, got shape {tuple(bias[0])}")
    for option, numbers in (("output_size", output_size), ("stride", stride), ("padding", padding),
                            ("dilation", dilation)):
        if len(numbers) != axes:
            raise ValueError(f"{name_of(axes, transposed)}: {option} must have {axes} numbers, got {tuple(numbers)}")
        if not all(-2**63 <= number < 2**63 for number in (*numbers, groups)):
            raise ValueError(f"{name_of(axes, transposed)}: {option} and groups must fit 64 bits, got {tuple(numbers)} "
                             f"and {groups}")
    triple = c_int64 * 3
    description = Convolution(axes, transposed, PRECISIONS[precision], _operand(input), _operand(weight),
                              _operand(bias), triple(*output_size), triple(*stride), triple(*padding),
                              triple(*dilation), groups)
    _checked(_library.voxgrad_check(byref(description)))
    return description


def convolution(description, input, weight, bias, output, stream):
    """Writes the result to the address `output`."""
    _checked(_library.voxgrad_convolution(byref(description), input, weight, bias, output, stream))


def weight_grad(description, input, grad_output, weight_grad, bias_grad, stream):
    """Writes the gradients of weight and, unless its address is None, bias."""
    _checked(_library.voxgrad_weight_grad(byref(description), input, grad_output, weight_grad, bias_grad, stream))


def device_number(function, device, numbers=True):
    """The number of a CUDA device: of "cuda", "cuda:1" or a torch.device; a number itself if `numbers`."""
    if numbers and type(device) is int and 0 <= device < 2**31:
        return device
    name = re.fullmatch(r"cuda(?::([0-9]{1,9}))?", str(device))
    if name is None:
        others = "a number" if numbers else "'cpu'"
        raise ValueError(f"{function}: device must be {others}, 'cuda' or 'cuda:<number>', got {device!r}")
    return int(name[1] or 0)


def has_cuda():
    """Whether this build of voxgrad has CUDA kernels."""
    return bool(_library.voxgrad_has_cuda())


def set_num_threads(threads):
    """Sets the number of CPU threads, from 1 to 1024. The default is VOXGRAD_NUM_THREADS, or all processors."""
    if type(threads) is not int or not 1 <= threads <= 1024:
        raise ValueError(f"set_num_threads: threads must be a whole number from 1 to 1024, got {threads!r}")
    _checked(_library.voxgrad_set_num_threads(threads))


def empty_cache(device=0):
    """Returns the unused working memory of voxgrad on a CUDA device to the GPU."""
    _checked(_library.voxgrad_empty_cache(device_number("empty_cache", device)))


def memory(device=0):
    """Bytes of working memory on a CUDA device (a number, "cuda" or "cuda:1"): in use, and all that voxgrad holds."""
    in_use, reserved = c_int64(), c_int64()
    _checked(_library.voxgrad_memory(device_number("memory", device), byref(in_use), byref(reserved)))
    return in_use.value, reserved.value
