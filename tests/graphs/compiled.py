"""The route by torch.compile(..., backend="voxgrad"): the graph as a module of PyTorch's functions, compiled, in f64.

The package and the shim of these tests (tests/opinfo/voxgrad.py) have one name, so load() comes after all imports.
"""

import importlib
import operator
import os
import sys
from pathlib import Path

import torch

import judge
import theirs
from graph import key, resolved
from judge import Failure, pick

backend = None  # voxgrad.torch.backend


def load(package):
    global backend
    os.environ["VOXGRAD_LIBRARY"] = package
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
    del sys.modules["voxgrad"]
    backend = importlib.import_module("voxgrad.torch.backend")


def module_of(graph, values):
    """Its inputs are the leaves; it returns the outputs of the graph."""
    traced, made = torch.fx.Graph(), {}
    for i, node in graph.nodes.items():
        if node.op == "leaf":
            made[i] = [traced.placeholder(f"leaf_{i}")]
        else:
            args, kwargs = resolved(node, made)
            results = traced.call_function(theirs.reference(node.op), tuple(args), kwargs)
            count = len(values[i])
            made[i] = [traced.call_function(operator.getitem, (results, n)) for n in range(count)] if count > 1 else [results]
    traced.output(tuple(made[i][n] for i, n in map(key, graph.outputs)))
    return torch.fx.GraphModule({}, traced)


def check(graph, values, counts):
    """Results and gradients are PyTorch's; `counts` says how many ops were voxgrad's."""
    if any(node.op in ("write", "overwrite") for node in graph.ops().values()):
        return
    refs, leaves = list(map(key, graph.outputs)), judge.differentiable(graph, values, leaves_only=True)
    operands = [values[i][0].detach().requires_grad_(values[i][0].requires_grad)
                for i, node in graph.nodes.items() if node.op == "leaf"]
    notes = []

    def compile_graph(module, inputs):
        backend._replace(module, notes, inputs)
        return backend.lookup_backend("aot_eager")(module, inputs)
    torch.compiler.reset()
    try:
        got = torch.compile(module_of(graph, values), backend=compile_graph)(*operands)
    except Exception as error:
        raise Failure("route compiled", -1, str(error)) from error
    for _, _, why in notes:
        counts["compiled: ops left to PyTorch" if why else "compiled: ops of voxgrad", ""] += 1
    judge.compare("route compiled", graph, refs, got, pick(values, refs), counts)
    start, wanted = judge.cotangents(graph, values), [t for t in operands if t.requires_grad]
    again = theirs.run(graph)  # judge.check() has freed what `values` saved
    expected = theirs.grad(pick(again, refs), start, pick(again, leaves))
    judge.compare("route compiled gradient", graph, leaves, theirs.grad(got, start, wanted), expected, counts,
                  *judge.of_gradients(start))
