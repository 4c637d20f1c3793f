"""A graph in PyTorch, in f64."""

import torch

import ops
from graph import key, leaf, resolved

WRONG = None  # an op whose gradient gets the wrong sign: a test shows that it is found


def viewed(x, view):
    for name, *args in view:
        x = reference(name)(x, *args)
    return x


def write(x, view, how, operand):
    """A copy of x with `operand` written by an in-place op, which PyTorch records, into a view of it."""
    copy = x.clone()
    getattr(viewed(copy, view), how)(operand)
    return copy


def overwrite(x, view, how, operand):
    """x itself, with a write into a view of its memory that the tape does not see."""
    getattr(viewed(x.detach(), view), how)(operand)
    return x


def batch_norm(x, mean, var, *rest, **options):
    """With copies of the running statistics, which are leaves of the graph."""
    mean, var = (None if t is None else t.clone() for t in (mean, var))
    return torch.nn.functional.batch_norm(x, mean, var, *rest, **options)


def median(x, *rest):
    """Of a dense copy: PyTorch 1.13 to 2.15 reads an expanded tensor as if it were dense."""
    return torch.median(x.contiguous(), *rest)


# What tests/opinfo/ops.py has no entry for, or another one than is meant here.
OWN = {"write": write, "overwrite": overwrite, "median": median, "detach": torch.Tensor.detach,
       "nn.functional.batch_norm": batch_norm}
_found = {}


def reference(name):
    """The op in PyTorch: "max.dim" is Tensor.max, "nn.functional.pad.reflect" is torch.nn.functional.pad."""
    if name not in _found:
        parts = name.split(".")
        found = OWN.get(name) or next((e.reference for e in ops.ENTRIES if e.name == name), None)
        if not found and parts[0] != "nn":
            found = getattr(torch.Tensor, parts[0], None) or getattr(torch, parts[0])
        elif not found:
            found = getattr(torch.nn.functional, parts[2])
        _found[name] = found
    return _found[name]


def memory(t):
    return (t.untyped_storage() if hasattr(t, "untyped_storage") else t.storage()).data_ptr()


def call(node, values):
    """The results of one node."""
    args, kwargs = resolved(node, values)
    results = reference(node.op)(*args, **kwargs)
    results = list(results) if isinstance(results, (tuple, list)) else [results]
    operands = {memory(values[i][n]) for i, n in node.refs()}
    # Whether a reshape of it is a view depends on its layout, and voxgrad's new tensors are dense.
    node.copied = any(memory(r) not in operands and not r.is_contiguous() for r in results)
    results = [r if memory(r) in operands else r.contiguous() for r in results]
    if node.op == WRONG:
        results = [2 * r.detach() - r if r.is_floating_point() else r for r in results]
    return results


def run(graph, grad=True):
    """All results of all nodes, by the node's number."""
    values = {}
    for i, node in graph.nodes.items():
        if node.op == "leaf":
            values[i] = [leaf(node).requires_grad_(grad and node.kwargs.get("grad", False))]
        elif node.op == "overwrite":
            # PyTorch makes new edges for a view whose memory was written; gradients here take the old ones.
            before = {j: [t.clone() for t in results] for j, results in values.items() if graph.nodes[j].op != "leaf"}
            call(node, values)
            for j, results in before.items():
                values[j] = [t + (after.detach() - t.detach()) if t.is_floating_point() else t
                             for t, after in zip(results, values[j])]
            values[i] = values[key(node.args[0])[0]][:1]
        else:
            values[i] = call(node, values)
    return values


def grad(outputs, cotangents, inputs, create_graph=False):
    found = torch.autograd.grad(outputs, inputs, cotangents, create_graph=create_graph, allow_unused=True)
    return [torch.zeros_like(i) if g is None else g for g, i in zip(found, inputs)]
