"""A graph in voxgrad, in any dtype, and the routes to its gradients."""

import ctypes
import functools
import math
import os
from contextlib import contextmanager
from ctypes import byref, c_int, c_int64, c_void_p

import torch

import capi
import ops
import voxgrad
from graph import key, leaf, resolved
from voxgrad import Tensor, vox

WRONG = None  # an op whose gradient is 1 % too large in f32 and 16 bits: a test shows that it is found
ENTRIES = {entry.name: entry for entry in ops.ENTRIES}
FUNCTION = ctypes.CFUNCTYPE(c_int64, ctypes.POINTER(c_void_p), c_int64, ctypes.POINTER(c_void_p))


def viewed(x, view):
    for name, *args in view:
        x = ENTRIES[name].call(x, *args)
    return x


def write_in_place(place, how, operand):
    return getattr(vox, how)(place, operand, *((1,) if how == "add_" and isinstance(operand, Tensor) else ()))


def write(x, view, how, operand):
    """A copy of x with `operand` written into a view of it. The tape records no write in place, so one that needs a
    gradient must be refused; ordinary ops make the same tensor."""
    copy = vox.clone(x)
    place = viewed(copy, view)
    if how in ("copy_", "fill_"):
        new = vox.clone(operand) if how == "copy_" else vox.full_like(place, operand)
    else:
        new = getattr(vox, how[:-1])(place, operand)
    if not (copy.requires_grad or new.requires_grad):
        write_in_place(place, how, operand)
        return copy
    try:
        write_in_place(place, how, operand)
    except voxgrad.VoxError as error:
        if "in-place writes are not recorded" not in str(error):
            raise
    else:
        raise voxgrad.WildError(f"{how} on the tape was not refused")
    number = torch.arange(math.prod(copy.shape)).reshape(copy.shape)
    places = vox.contiguous(viewed(voxgrad.tensor(number), view))
    return vox.reshape(vox.scatter(vox.flatten(copy, 0, -1), 0, vox.flatten(places, 0, -1), vox.flatten(new, 0, -1)),
                       copy.shape)


def overwrite(x, view, how, operand):
    """x itself, with a write into a view of its memory that the tape does not see."""
    write_in_place(viewed(vox.detach(x), view), how, operand)
    return x


OWN = {"write": write, "overwrite": overwrite, "detach": vox.detach}


def call(node, values):
    """The results of one node."""
    args, kwargs = resolved(node, values)
    results = (OWN.get(node.op) or ENTRIES[node.op].call)(*args, **kwargs)
    results = list(results) if isinstance(results, (tuple, list)) else [results]
    if node.op == WRONG and results[0].dtype != torch.float64:
        results[0] = vox.add(results[0], vox.mul(vox.sub(results[0], vox.detach(results[0])), 0.01))
    return results


def leaves(graph, dtype):
    """Its leaves, by node."""
    return {i: [voxgrad.tensor(leaf(node, dtype), node.kwargs.get("grad", False))]
            for i, node in graph.nodes.items() if node.op == "leaf"}


def run(graph, dtype, segment=(), made=None):
    """All results of all nodes; the nodes of `segment`, neighbours in their order, in a checkpoint. `made` are the leaves,
    if there are any."""
    values = dict(made or leaves(graph, dtype))
    for i, node in graph.nodes.items():
        if i in segment:
            if i == segment[0]:
                values.update(checkpoint(graph, segment, values))
        elif node.op != "leaf":
            values[i] = call(node, values)
    return values


def passed(name, function, *arguments):
    """Calls an entry of routes.cpp with `function`, whose exceptions must not pass through C++. Returns what C++ got of it."""
    errors = []

    def wrapped(*handles):
        try:
            return function(*handles) or 0
        except Exception as error:
            errors.append(error)
            return -1
    given = FUNCTION(wrapped)
    try:
        voxgrad._library.call(name, given, *arguments)
    except voxgrad.VoxError as error:
        raise errors[0] if errors else error
    return given


def checkpoint(graph, segment, values):
    """The results of a segment that others use, by one call of vox::checkpoint. The segment's floating inputs are the
    checkpoint's; integers, and what the segment leaves unused, it captures."""
    inside = set(segment)
    used = {ref for i, node in graph.nodes.items() if i not in inside for ref in node.refs() if ref[0] in inside}
    used |= {key(ref) for ref in graph.outputs if key(ref)[0] in inside}
    inputs = sorted({ref for i in segment for ref in graph.nodes[i].refs() if ref[0] not in inside})
    inputs = [ref for ref in inputs if values[ref[0]][ref[1]].dtype.is_floating_point]
    captured = {i: list(values[i]) for i in {ref[0] for s in segment for ref in graph.nodes[s].refs()} - inside}
    results = sorted(used)

    def function(handles, count, out):
        local = {i: list(r) for i, r in captured.items()}
        for n in range(count):
            local[inputs[n][0]][inputs[n][1]] = Tensor(c_void_p(handles[n]))
        for s in segment:
            local[s] = call(graph.nodes[s], local)
        for n, (i, result) in enumerate(results):
            out[n] = released(local[i][result])
        return len(results)
    found, count = (c_void_p * 64)(), c_int64()
    wrapped = passed("checkpoint", function, capi.handles([values[i][r] for i, r in inputs]), c_int64(len(inputs)), found,
                     byref(count))
    made = {}
    for (i, result), handle in zip(results, found):
        made.setdefault(i, {})[result] = Tensor(c_void_p(handle))
        made[i][result].function = wrapped  # lives as long as the result
    return {i: [r.get(n) for n in range(max(r) + 1)] for i, r in made.items()}


def released(tensor):
    """The handle, which the callee frees."""
    handle, tensor._handle = tensor._handle.value, None
    return handle


def tensors(handles):
    return [Tensor(c_void_p(h)) if h else None for h in handles]


grad = functools.partial(voxgrad.grad, create_graph=False, retain_graph=False)


def backward(output, cotangent, inputs):
    """The gradients that Tensor::backward leaves in leaves."""
    results = (c_void_p * len(inputs))()
    voxgrad._library.call("backward", output._handle, cotangent._handle, capi.handles(inputs), c_int64(len(inputs)),
                          results)
    return tensors(results)


@contextmanager
def autocast_off():
    """Inside of a scope that is on."""
    voxgrad._library.call("autocast", b"bf16", c_int(1))
    voxgrad._library.call("autocast", b"bf16", c_int(0))
    try:
        yield
    finally:
        voxgrad._library.call("autocast_end")
        voxgrad._library.call("autocast_end")


def capture(function, replays):
    """Runs `function` in a captured CUDA graph."""
    passed("capture", lambda *_: function(), c_int64(replays))


@functools.cache
def has_dist():
    """Whether voxgrad::dist was built. The first call finds the ranks that mpirun started."""
    if "OMPI_COMM_WORLD_RANK" in os.environ:
        voxgrad._library.call("find_ranks")
    return hasattr(voxgrad._library.loaded, "voxgrad_data_parallel")


def data_parallel(loss, inputs):
    """The gradients of loss() that vox::dist::DataParallel leaves in leaves."""
    def function(handles, count, out):
        out[0] = released(loss())
        return 1
    results = (c_void_p * len(inputs))()
    passed("data_parallel", function, capi.handles(inputs), c_int64(len(inputs)), results)
    return tensors(results)


def memory_in_use():
    found = c_int64()
    voxgrad._library.call("memory_in_use", voxgrad._device.encode(), byref(found))
    return found.value


def read(tensors):
    """Copies in PyTorch; None stays None."""
    return [None if t is None else t.torch() for t in tensors]
