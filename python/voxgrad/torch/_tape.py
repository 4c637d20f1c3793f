"""voxgrad's ops as nodes of PyTorch's graph: call("relu", x).

voxgrad records an op on its own tape, on PyTorch's memory. One node of PyTorch's graph, a _Node, holds the tape. Its
backward is vox::grad. With create_graph that is recorded too, as a further _Node: so all ops have gradients of any
order, from one mechanism.

What a tape saved, PyTorch saves too, so it notices a write in place. Inside torch.utils.checkpoint and other hooks on
saved tensors the memory must be PyTorch's alone: there an op is not recorded, and its backward repeats it.
"""

import functools
from contextlib import contextmanager
from ctypes import byref, c_char_p, c_int, c_int64, c_void_p

import torch
from torch.utils.dlpack import from_dlpack

from .. import _capi, _library, _tensor
from . import _ops

_vox = _library._library
_MOST_RESULTS = 64
# PyTorch 1.13 has none of these.
_keeps_graph = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)
_hooks = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", lambda ignore_tracing: None)


class _Handle(_capi.Handle):
    """A vox::Tensor."""

    def __init__(self, handle):
        self._handle = handle

    def __del__(self, free=_vox.voxgrad_tensor_free):
        free(self._handle)


@functools.lru_cache(maxsize=4096)
def _array(numbers):
    return (c_int64 * max(1, len(numbers)))(*numbers)  # which nobody writes


def _handle_on(tensor, requires_grad):
    """A leaf on the tensor's memory."""
    if tensor.layout is not torch.strided or tensor.dtype not in _ops.NUMBERS:
        raise TypeError(f"voxgrad: a tensor of {tensor.dtype}, {tensor.layout}; it computes strided tensors of "
                        f"{', '.join(map(str, _ops.NUMBERS))}")
    if tensor.device.type not in ("cpu", "cuda"):
        raise RuntimeError(f"voxgrad: a tensor on {tensor.device}; it computes on cpu and cuda")
    handle = c_void_p()
    _library._checked(_vox.voxgrad_tensor_on(
        c_void_p(_ops.address(tensor)), _ops.NUMBERS[tensor.dtype], tensor.device.index if tensor.is_cuda else -1, c_int64(tensor.dim()),
        _array(tuple(tensor.shape)), _array(tensor.stride()), requires_grad, byref(handle)))
    return _Handle(handle)


def _tensors_on(handles, operands):
    """PyTorch's tensors on voxgrad's memory."""
    tensors, managed, operands = [], c_void_p(), _capi.handles(operands)
    for h in handles:
        _library._checked(_vox.voxgrad_result_lend(h._handle, operands, c_int64(len(operands)), byref(managed)))
        tensors.append(from_dlpack(_tensor._python.PyCapsule_New(managed, b"dltensor", _tensor._destroy_capsule)))
    return tensors


def _requires_grad(handle):
    dtype, rank, sizes, strides, grad = c_char_p(), c_int64(), (c_int64 * 8)(), (c_int64 * 8)(), c_int()
    _library._checked(_vox.voxgrad_tensor_describe(handle._handle, byref(dtype), byref(rank), sizes, strides, byref(grad)))
    return bool(grad.value)


@contextmanager
def _in_stream(device):
    if device.type != "cuda":
        yield
        return
    stream = torch.cuda.current_stream(device).cuda_stream
    _library._checked(_vox.voxgrad_enter_stream(device.index, c_void_p(stream)))
    try:
        yield
    finally:
        _vox.voxgrad_leave_stream()


class _Tape:
    """What a call recorded, if an input requires grad: from handles to handles."""

    def __init__(self, inputs, outputs):
        self.inputs, self.outputs = inputs, outputs

    @classmethod
    def of_call(cls, name, values, tensors, record):
        inputs = [_handle_on(t, record and t.requires_grad and t.is_floating_point()) for t in tensors]
        handles = iter(inputs)
        arguments = _capi.arguments([_replaced(v, handles) for v in values])
        results, count = (c_void_p * _MOST_RESULTS)(), c_int64(_MOST_RESULTS)
        with _in_stream(tensors[0].device):
            _library._checked(_vox.voxgrad_call(name.encode(), arguments, c_int64(len(arguments)), results, byref(count)))
        return cls(inputs, [_Handle(c_void_p(h)) for h in results[:count.value]])

    def gradients(self, gradients, wanted, create_graph, keep, device):
        """Handles of the gradients of the inputs `wanted`, None where there is none. `gradients` is by output."""
        given = [(h, g) for h, g in zip(self.outputs, gradients) if g is not None]
        inputs, results = [self.inputs[i] for i in wanted], (c_void_p * len(wanted))()
        with _in_stream(device):
            _library._checked(_vox.voxgrad_grad(
                _capi.handles([h for h, _ in given]), _capi.handles([g for _, g in given]), c_int64(len(given)),
                _capi.handles(inputs), c_int64(len(inputs)), create_graph, keep, results))
        return [_Handle(c_void_p(h)) if h else None for h in results]


def _tensors_of(values):
    for v in values:
        if isinstance(v, torch.Tensor):
            yield v
        elif isinstance(v, list):
            yield from _tensors_of(v)


def _replaced(value, handles):
    if isinstance(value, torch.Tensor):
        return next(handles)
    return [_replaced(v, handles) for v in value] if isinstance(value, list) else value


class _Node(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tape, repeat, *tensors):
        shared = [bool(_vox.voxgrad_tensor_is_shared(h._handle)) for h in tape.inputs + tape.outputs]  # by the tape
        results = _tensors_on(tape.outputs, tape.inputs)
        ctx.set_materialize_grads(False)
        ctx.repeat, ctx.device = repeat, tensors[0].device
        if repeat:
            ctx.save_for_backward(*tensors)
        else:
            ctx.tape, ctx.tensors = tape, tensors
            ctx.save_for_backward(*(t for t, by_tape in zip((*tensors, *results), shared) if by_tape))
            ctx.mark_non_differentiable(*(r for r, h in zip(results, tape.outputs) if not _requires_grad(h)))
        return tuple(results)

    @staticmethod
    def backward(ctx, *gradients):
        saved, create = ctx.saved_tensors, torch.is_grad_enabled()
        keep = create or _keeps_graph()
        if ctx.repeat:
            tape, tensors = ctx.repeat(saved), saved
        elif ctx.tape is None:
            raise RuntimeError("Trying to backward through the graph a second time: voxgrad freed what this op saved. "
                               "Specify retain_graph=True the first time")
        else:
            tape, tensors = ctx.tape, ctx.tensors
        wanted = [i for i, needed in enumerate(ctx.needs_input_grad[2:]) if needed]
        given = [g for g in gradients if g is not None]
        results = [None] * (2 + len(tensors))
        if not given or not wanted:
            return tuple(results)
        handles = [None if g is None else _handle_on(g, create and g.requires_grad) for g in gradients]
        found = tape.gradients(handles, wanted, create, keep, ctx.device)
        there = [(i, h) for i, h in zip(wanted, found) if h]
        if create and there:
            made = _Tape(tape.inputs + [h for h in handles if h], [h for _, h in there])
            outputs = _Node.apply(made, None, *tensors, *given)
        else:
            outputs = _tensors_on([h for _, h in there], tape.inputs + [h for h in handles if h])
        if not keep and not ctx.repeat:
            ctx.tape = ctx.tensors = None
        for (i, _), output in zip(there, outputs):
            results[2 + i] = output
        return tuple(results)


def call(name, *values, again=None):
    """The result of voxgrad's op `name` (capi/ops.cpp), or the list of its results. `again` are the values with which a
    backward may repeat it, if they differ."""
    tensors = list(_tensors_of(values))
    if torch.overrides.has_torch_function(tensors):  # a subclass of Tensor that keeps its class, such as MONAI's
        return torch.overrides.handle_torch_function(call, tensors, name, *values, again=again)
    record = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
    hooked = record and _hooks(True) is not None  # a checkpoint, or a hook that moves saved tensors
    tape = _Tape.of_call(name, values, tensors, record and not hooked)
    if hooked:
        values = again or values
        tensors = list(_tensors_of(values))
        results = _Node.apply(tape, lambda saved: _Tape.of_call(name, values, saved, True), *tensors)
    elif record:
        results = _Node.apply(tape, None, *tensors)
    else:
        results = _tensors_on(tape.outputs, tape.inputs)
    return results[0] if len(results) == 1 else list(results)
