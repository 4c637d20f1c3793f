"""The library, loaded by ctypes: its statuses as exceptions, its memory and its threads.

This module knows no framework. ctypes releases the GIL during calls.
"""

import ctypes
import os
import re
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_void_p
from pathlib import Path

class OutOfMemory(MemoryError):
    """An allocation of voxgrad that failed, on the host or on the GPU."""


_ERRORS = {1: ValueError, 2: ValueError, 3: TypeError, 7: OutOfMemory}  # by VoxgradStatus; others: RuntimeError


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
    for name, arguments in {
            "kernel": [c_char_p, c_void_p, c_int64, c_void_p, c_void_p, c_int64, c_void_p],
            "set_num_threads": [c_int], "empty_cache": [c_int],
            "memory": [c_int, POINTER(c_int64), POINTER(c_int64)]}.items():
        getattr(library, "voxgrad_" + name).argtypes = arguments
    return library


_library = _load()
version = _library.voxgrad_version().decode()


def _checked(status):
    if status:
        raise _ERRORS.get(status, RuntimeError)(_library.voxgrad_last_error().decode(errors="replace"))


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
