"""voxgrad, through the C ABI of shim.cpp, on the memory of torch tensors."""

import ctypes
from ctypes import byref, c_char_p, c_int, c_int64, c_void_p

from common.library import DTYPES, Library, VoxgradError

from .problems import PASSES


class _Problem(ctypes.Structure):
    _fields_ = [("input", c_int64 * 5), ("weight", c_int64 * 5), ("stride", c_int64 * 3),
                ("padding", c_int64 * 3), ("output_padding", c_int64 * 3), ("dilation", c_int64 * 3),
                ("groups", c_int64)]


class Voxgrad(Library):
    def run(self, pass_, problem, tensors):
        return Run(self, pass_, problem, tensors)


class Run:
    """One prepared pass; a call runs it. It holds memory: use it as a context manager."""

    def __init__(self, voxgrad, pass_, p, tensors):
        self._voxgrad, self._pass, self._tensors = voxgrad, pass_, tensors  # keeps their memory
        description = _Problem(p.input_shape, p.weight_shape, (p.stride,) * 3, p.padding,
                               (p.output_padding,) * 3, (p.dilation,) * 3, p.groups)
        pointers = []
        for tensor in (tensors.x, tensors.weight, None if pass_ == "forward" else tensors.bias, tensors.gy):
            if tensor is not None and (tensor.dtype != tensors.x.dtype or not tensor.is_contiguous()):
                raise ValueError("voxgrad takes dense tensors of one dtype here")
            pointers.append(c_void_p(None if tensor is None else tensor.data_ptr()))
        self._handle = c_void_p()
        voxgrad.call("prepare", byref(description), c_int(PASSES.index(pass_)), c_int(tensors.x.is_cuda),
                      DTYPES[str(tensors.x.dtype)].encode(), *pointers, byref(self._handle))
        self._run = voxgrad.loaded.vox_bench_run
        self._run.restype = c_char_p

    def __call__(self):
        message = self._run(self._handle)
        if message is not None:
            raise VoxgradError(message.decode())

    def poison(self):
        self._voxgrad.call("poison", self._handle)

    def results(self, torch):
        """Copies of the results in torch tensors, and whether all lay in memory that held NaN before."""
        t, all_poisoned = self._tensors, True
        templates = {"forward": [t.gy], "grad-input": [t.x], "grad-weight": [t.weight, t.bias],
                     "step": [t.gy, t.x, t.weight, t.bias]}[self._pass]
        copies = []
        for index, template in enumerate(templates):
            copy, poisoned = torch.full_like(template, float("nan")), c_int()
            self._voxgrad.call("result", self._handle, c_int(index), c_void_p(copy.data_ptr()),
                                byref(poisoned))
            copies.append(copy)
            all_poisoned &= bool(poisoned.value)
        return copies, all_poisoned

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._voxgrad.call("free", self._handle)
