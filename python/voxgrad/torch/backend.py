"""torch.compile(model, backend="voxgrad"), and explain(model, ...).

TorchDynamo hands over a graph of PyTorch's functions. Those of volumes that voxgrad computes are replaced by custom ops
with gradients (_ops.py, _layers.py), a norm with the relu or leaky_relu behind it by one op. Another backend compiles
the result, by default inductor: it derives the backward, plans what is saved, fuses the ops between ours, and captures
CUDA graphs if the mode says so.

The replacement comes before AOTAutograd, because a function is one node there, with PyTorch's signature, and its
gradient is not yet written. What voxgrad cannot compute stays as it is: a node is replaced only if the new op accepts
its operands, which is tried on tensors without memory.
"""

import contextlib
import copy
import warnings
from collections import Counter

import torch
import torch.nn.functional as F
from torch._dynamo.backends.registry import list_backends, lookup_backend, register_backend
from torch._dynamo.exc import RestartAnalysis
from torch._dynamo.utils import counters
from torch.amp import autocast_mode

from .. import has_cuda
from . import _layers, _ops, functional

_NORMS = {F.batch_norm: _layers.batch_norm, F.instance_norm: _layers.instance_norm, F.group_norm: _layers.group_norm}
_FUNCTIONS = {torch.conv3d: functional.conv3d, torch.conv_transpose3d: functional.conv_transpose3d, **_NORMS,
              F.max_pool3d: _layers.max_pool3d, F.interpolate: _layers.interpolate}
_RELUS = (F.relu, torch.relu, torch.relu_, "relu", "relu_")
_NO_OPS = ("getitem", "getattr", "_enter_autocast", "_exit_autocast")
_COMPILERS = "voxgrad leaves this op to the compiler"
_NAMES = {f: name for name, f in vars(F).items() if callable(f)}  # max_pool3d is called fn


def _name(node):
    target = node.target
    return target if isinstance(target, str) else _NAMES.get(target) or getattr(target, "__name__", str(target))


def _layer(node):
    """The path of the layer that calls the op, or the name of the node."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return (stack[-1][0].removeprefix("L['self']").lstrip(".") if stack else "") or node.name


def _why_unsupported(tensors):
    """Why voxgrad has no op on these tensors, or None."""
    for t in tensors:
        if torch.utils._python_dispatch.is_traceable_wrapper_subclass(t):
            return f"an operand is a {type(t).__name__}"
        if t.layout is not torch.strided or t.dtype not in _ops.COMPUTED:
            return f"an operand is of {t.dtype}, {t.layout}"
        if t.device.type not in ("cpu", "cuda") or t.is_cuda and not has_cuda():
            return f"an operand is on {t.device}, where this build of voxgrad does not compute"
        if any(type(size) is int and size == 0 for size in t.shape):
            return "an operand has no elements"
    return None


def _why_left(node):
    """Why the node stays PyTorch's, or None."""
    if node.target not in _FUNCTIONS:
        return _COMPILERS
    try:
        arguments = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: n.meta["example_value"])
        why = _why_unsupported([t for t in torch.utils._pytree.tree_leaves(arguments) if isinstance(t, torch.Tensor)])
        if why:
            return why
        with torch.no_grad():
            result = _FUNCTIONS[node.target](*arguments[0], **arguments[1])
        expected = node.meta["example_value"]
        return None if result.dtype == expected.dtype else f"it would be of {result.dtype}, not {expected.dtype}"
    except Exception as error:  # whatever it is, PyTorch can compute this node
        return str(error) or type(error).__name__


def _slope(node):
    """The negative slope of a relu or leaky_relu, or None."""
    if node.target in _RELUS:
        return 0.0
    if node.target is F.leaky_relu:
        slope = node.args[1] if len(node.args) > 1 else node.kwargs.get("negative_slope", 0.01)
        return float(slope) if isinstance(slope, (int, float)) else None
    return None


def _join(norm):
    """Lets a norm compute the activation that alone reads it. Returns its node, or None."""
    follower = next(iter(norm.users)) if len(norm.users) == 1 else None
    slope = _slope(follower) if follower is not None else None
    if slope is None or follower.args[:1] != (norm,):
        return None
    norm.kwargs = {**norm.kwargs, "negative_slope": slope}
    follower.replace_all_uses_with(norm)
    norm.meta["example_value"] = follower.meta["example_value"]
    norm.graph.erase_node(follower)
    return follower


def _replace(module, notes, example_inputs=()):
    """Replaces what voxgrad computes in a graph, and in the graphs that it calls. `notes` gets the name of each op, its
    layer, and why it is left, or None."""
    nodes = list(module.graph.nodes)
    for node, value in zip(nodes, example_inputs):  # a graph that DistributedDataParallel cut has no values there
        node.meta.setdefault("example_value", value)
    in_transform = any("_functorch" in str(getattr(n.target, "__module__", "")) for n in nodes)
    joined, regions = set(), {}
    with contextlib.ExitStack() as open_regions:
        for node in nodes:
            if node.target is autocast_mode._enter_autocast:  # the nodes that follow run, and are tried, inside
                regions[node] = open_regions.enter_context(contextlib.ExitStack())
                regions[node].enter_context(torch.autocast(*node.args))
            elif node.target is autocast_mode._exit_autocast:
                regions[node.args[0]].close()
            if not node.op.startswith("call") or node in joined or _name(node) in _NO_OPS:
                continue
            name, layer = _name(node), _layer(node)
            why = "it is inside a transform of torch.func" if in_transform else _why_left(node)
            if why is None or str(node.target).startswith("voxgrad."):
                why = None
                follower = _join(node) if node.target in _NORMS else None
                if follower is not None:
                    joined.add(follower)
                    notes.append((_name(follower), _layer(follower), None))
                node.target = _FUNCTIONS.get(node.target, node.target)
            notes.append((name, layer, why))
    for child in module.children():
        if isinstance(child, torch.fx.GraphModule):
            _replace(child, notes)
    module.recompile()


def backend(graph, example_inputs, *, mode=None, options=None, **_):
    """The backend "voxgrad" of torch.compile. `mode` and `options` are inductor's. The further option "rest" names the
    backend that compiles the graph after the replacement, for example "aot_eager", or "cudagraphs" where there is no
    Triton. Convolutions keep the precision of the call that compiles."""
    from torch._inductor import list_mode_options, list_options
    options = dict(options or {})
    rest = options.pop("rest", None)
    unknown = options.keys() - set(list_options())
    if unknown:
        raise ValueError(f"torch.compile: neither voxgrad nor inductor has the options {', '.join(sorted(unknown))}")
    patches = {**list_mode_options(mode or "default"), **options}
    _replace(graph, [], example_inputs)
    if rest not in (None, "inductor"):
        return lookup_backend(rest)(graph, example_inputs)
    spare = torch.fx.GraphModule(graph, copy.deepcopy(graph.graph))  # inductor may change what it compiles
    try:
        return lookup_backend("inductor")(graph, example_inputs, config_patches=patches)
    except Exception as error:
        if rest or isinstance(error, RestartAnalysis):  # which asks TorchDynamo for another graph
            raise
        why = (str(error).splitlines() or [type(error).__name__])[0]
        warnings.warn(f"voxgrad: inductor cannot compile this graph ({why}); what stays PyTorch's runs uncompiled")
        return lookup_backend("aot_eager")(spare, example_inputs)


def _reset():
    from torch._inductor.cudagraph_trees import reset_cudagraph_trees
    reset_cudagraph_trees()


backend.reset = _reset  # torch.compiler.reset() calls it
if "voxgrad" not in list_backends():  # an installed package has an entry point
    register_backend(backend, "voxgrad")


class Explanation:
    """What torch.compile(model, backend="voxgrad") does with a model. It prints as a table.

    taken     pairs (op, layer): computed by voxgrad
    left      triples (op, layer, reason): compiled by PyTorch
    breaks    why there is more than one graph; code between graphs runs in Python
    """

    def __init__(self, notes, graphs, breaks):
        self.taken = [(op, layer) for op, layer, why in notes if why is None]
        self.left = [note for note in notes if note[2] is not None]
        self.graphs, self.breaks = graphs, breaks

    def __str__(self):
        taken, left = Counter(op for op, _ in self.taken), Counter((op, why) for op, _, why in self.left)
        ops = len(self.taken) + len(self.left)
        lines = [f"graphs: {self.graphs}; voxgrad computes {len(self.taken)} ops of {ops}:"]
        lines += [f"  {op} ({count})" for op, count in taken.items()]
        lines += ["the compiler has:"] if left else []
        for (op, why), count in left.items():
            lines.append(f"  {op} ({count})" + (f": {why}" if why != _COMPILERS else ""))
        return "\n".join(lines + [f"graph break: {why.splitlines()[0]}" for why in self.breaks])


def explain(model, *args, **kwargs):
    """Runs the model once, and says which of its ops torch.compile(model, backend="voxgrad") gives to voxgrad, and
    why the others stay. Buffers keep their values. Like torch._dynamo.explain, it discards what was compiled before.
    Returns an Explanation."""
    notes, graphs = [], []

    def record(graph, example_inputs):
        _replace(graph, notes, example_inputs)
        graphs.append(graph)
        return graph.forward

    buffers = list(model.buffers()) if isinstance(model, torch.nn.Module) else []
    values, breaks = [b.clone() for b in buffers], Counter(counters["graph_break"])
    torch.compiler.reset()
    try:
        torch.compile(model, backend=record)(*args, **kwargs)
    finally:
        with torch.no_grad():
            for buffer, value in zip(buffers, values):
                buffer.copy_(value)
        torch.compiler.reset()
    return Explanation(notes, len(graphs), list(Counter(counters["graph_break"]) - breaks))
