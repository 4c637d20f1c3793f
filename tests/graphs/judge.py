"""Whether voxgrad and PyTorch agree on a graph in f64: results, gradients and second gradients, by every node.

A result may differ from PyTorch's by TOLERANCE times its own largest element, or a share of the largest element of all
results of the same order (or a lower one, if gradients), whichever is more. The share is 1e-3, and for gradients more with
the number of elements that they begin with: the gradient of a norm's sum is nothing but their rounding errors. Integers,
bools and shapes are equal.
"""

import random

import torch

import ours
import theirs
import voxgrad
from graph import drawn, key

TOLERANCE = 1e-9
# Where PyTorch saves the result, a difference, a dense copy, or nothing: a norm saves its bias, which the gradient of an
# activation after it needs.
KEEPS_THE_OPERAND = ("reciprocal", "matmul", "bmm", *(f"nn.functional.{name}" for name in (
    "linear", "l1_loss", "cross_entropy", "batch_norm", "instance_norm", "group_norm", "layer_norm")))
REFUSALS = (voxgrad.VoxError, voxgrad.WildError, voxgrad.Inexpressible)


class Failure(Exception):
    """`kind` says what differs, `node` where."""

    def __init__(self, kind, node, message):
        super().__init__(f"{kind} of %{node}: {message}")
        self.kind, self.node = kind, node


def largest(t):
    return t.detach().abs().max().item() if t.is_floating_point() and t.numel() else 0.0


def differentiable(graph, values, leaves_only=False, copies_too=False):
    """(node, result) of what gradients are compared by; leaves first. A node that returns its operand as it is may be the
    same tensor in PyTorch, so it is left out unless `copies_too`."""
    def copies(node, t):
        return not copies_too and any(values[i][n].shape == t.shape and torch.equal(values[i][n], t) for i, n in node.refs())
    found = [(i, n) for i, node in graph.nodes.items() for n, t in enumerate(values[i])
             if t is not None and t.requires_grad and (node.op == "leaf" or not (leaves_only or copies(node, t)))]
    return sorted(found, key=lambda ref: graph.nodes[ref[0]].op != "leaf")


def cotangents(graph, values):
    """What a gradient begins with at each output, in f64."""
    r = random.Random(graph.seed)
    return [drawn(values[i][n].shape, r.randrange(10**9)) for i, n in map(key, graph.outputs)]


def pick(values, refs):
    return [values[i][n] for i, n in refs]


def compare(kind, graph, refs, got, want, counts, lower=0.0, share=1e-3):
    """Throws Failure at the first of the tensors that differ; returns the largest element, `lower` included."""
    everywhere = max([lower, *map(largest, want)])
    for (i, _), g, w in zip(refs, got, want):
        w = w.detach()
        g = torch.zeros_like(w) if g is None else g
        op = graph.nodes[i].op if i in graph.nodes else "cotangent"
        counts[kind, op] += 1
        if g.shape != w.shape or g.dtype != w.dtype:
            raise Failure(kind, i, f"{op}: {g.dtype} {tuple(g.shape)}, PyTorch has {w.dtype} {tuple(w.shape)}")
        if not w.is_floating_point():
            if not torch.equal(g, w):
                raise Failure(kind, i, f"{op}: integers differ")
            continue
        allowed = TOLERANCE * max(largest(w), share * everywhere)
        wrong = ~((g - w).abs() <= allowed)
        if wrong.any():
            at = tuple(wrong.nonzero()[0].tolist())
            raise Failure(kind, i, f"{op}: {wrong.sum().item()} of {w.numel()} elements, first at {at}: "
                          f"{g[at].item()!r}, PyTorch has {w[at].item()!r}")
    return everywhere


def of_gradients(start):
    """`lower` and `share` of compare() for gradients that begin with these."""
    return max(map(largest, start), default=0.0), min(1, 1e-3 + 1e-4 * sum(c.numel() for c in start))


def called(kind, f, *arguments, **options):
    """voxgrad must not refuse what PyTorch computes."""
    try:
        return f(*arguments, **options)
    except REFUSALS as error:
        raise Failure(kind, -1, str(error)) from error


def attempt(errors, f, *arguments, **options):
    """(what f returns, "") or (None, the message of its error)."""
    try:
        return f(*arguments, **options), ""
    except errors as error:
        return None, str(error)


def refused(kind, graph, ours_says, theirs_says, counts):
    """Whether voxgrad refuses a gradient. It must if what a node saved was written, as PyTorch does, and only then. Which
    tensors a formula saves is free: PyTorch may refuse alone, and voxgrad's gradient must be right then; where voxgrad
    may refuse alone, KEEPS_THE_OPERAND says, and where PyTorch saved a result that the graph has a dense copy of."""
    stale = "modified by an inplace operation" in theirs_says
    alone = not stale and any(node.copied or node.op in KEEPS_THE_OPERAND for node in graph.ops().values())
    if ours_says and not ((stale or alone) and "was written in place since" in ours_says):
        raise Failure(f"refused {kind}", -1, f"{ours_says}; PyTorch: {theirs_says or 'no error'}")
    if stale or ours_says:
        counts[f"{kind} refused by {'PyTorch alone' if not ours_says else 'both' if stale else 'voxgrad alone'}", ""] += 1
    return ours_says


def check(graph, theirs_values, counts):
    """Throws Failure where voxgrad and PyTorch differ."""
    mine = called("refused", ours.run, graph, torch.float64)
    refs = [(i, n) for i in graph.nodes for n, r in enumerate(theirs_values[i])]
    compare("value", graph, refs, ours.read(pick(mine, refs)), pick(theirs_values, refs), counts)

    outputs = [key(o) for o in graph.outputs]
    # Behind a write a tensor may be another one on the tape than before it.
    inputs = differentiable(graph, theirs_values, leaves_only=graph.kind == "written")
    # By leaves and cotangents alone: whether a formula of a gradient reads an op's operand or its result is free.
    leaves = differentiable(graph, theirs_values, leaves_only=True)
    start = [c.requires_grad_() for c in cotangents(graph, theirs_values)]
    my_start = [voxgrad.tensor(c.detach(), True) for c in start]

    def their_gradient(values):
        return theirs.grad(pick(values, outputs), start, pick(values, inputs), create_graph=True)

    said, exact = "", theirs_values
    if graph.kind == "written":  # right gradients need what nodes saved, as it was
        plain, said = attempt(RuntimeError, their_gradient, theirs_values)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().clone(), lambda t: t):
            exact = theirs.run(graph)
            want = their_gradient(exact)
    else:
        want = their_gradient(exact)
    got, error = attempt(REFUSALS, ours.grad, pick(mine, outputs), my_start, pick(mine, inputs), create_graph=True)
    if refused("gradient", graph, error, said, counts):
        return
    lower, share = of_gradients(start)
    scale = compare("gradient", graph, inputs, ours.read(got), want, counts, lower, share)

    known = [n for n, (g, w, ref) in enumerate(zip(got, want, inputs))
             if g is not None and w.requires_grad and graph.nodes[ref[0]].op == "leaf"]
    if not known:
        return
    r = random.Random(-graph.seed)
    second = [drawn(want[n].shape, r.randrange(10**9)) for n in known]

    def their_second_gradient(first, values):
        return theirs.grad([first[n] for n in known], second, pick(values, leaves) + start)
    if graph.kind == "written" and not said:
        said = attempt(RuntimeError, their_second_gradient, plain, theirs_values)[1]
    got, error = attempt(REFUSALS, ours.grad, [got[n] for n in known], [voxgrad.tensor(s) for s in second],
                         pick(mine, leaves) + my_start)
    if not refused("second gradient", graph, error, said, counts):
        compare("second gradient", graph, leaves + [(-1 - n, 0) for n in range(len(start))], ours.read(got),
                their_second_gradient(want, exact), counts, scale, share)
