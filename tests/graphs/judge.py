"""Whether voxgrad and PyTorch agree on a graph in f64: results, gradients and second gradients, by every node.

A result may differ from PyTorch's by TOLERANCE times its own largest element, or 1e-3 times the largest element of all
results of the same order (or a lower one, if second gradients), whichever is more. Integers, bools and shapes are equal.
"""

import random

import torch

import ours
import theirs
import voxgrad
from graph import drawn, key

TOLERANCE = 1e-9


class Failure(Exception):
    """`kind` says what differs, `node` where."""

    def __init__(self, kind, node, message):
        super().__init__(f"{kind} of %{node}: {message}")
        self.kind, self.node = kind, node


def largest(t):
    return t.detach().abs().max().item() if t.is_floating_point() and t.numel() else 0.0


def differentiable(graph, values, leaves_only=False):
    """(node, result) of what gradients are compared by; leaves first. A node that returns its operand as it is may be the
    same tensor, so it is left out."""
    def copies(node, t):
        return any(values[i][n].shape == t.shape and torch.equal(values[i][n], t) for i, n in node.refs())
    found = [(i, n) for i, node in graph.nodes.items() for n, t in enumerate(values[i])
             if t is not None and t.requires_grad and (node.op == "leaf" or not (leaves_only or copies(node, t)))]
    return sorted(found, key=lambda ref: graph.nodes[ref[0]].op != "leaf")


def cotangents(graph, values):
    """What a gradient begins with at each output, in f64."""
    r = random.Random(graph.seed)
    return [drawn(values[i][n].shape, r.randrange(10**9)) for i, n in map(key, graph.outputs)]


def pick(values, refs):
    return [values[i][n] for i, n in refs]


def compare(kind, graph, refs, got, want, counts, lower=0.0):
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
        allowed = TOLERANCE * max(largest(w), 1e-3 * everywhere)
        wrong = ~((g - w).abs() <= allowed)
        if wrong.any():
            at = tuple(wrong.nonzero()[0].tolist())
            raise Failure(kind, i, f"{op}: {wrong.sum().item()} of {w.numel()} elements, first at {at}: "
                          f"{g[at].item()!r}, PyTorch has {w[at].item()!r}")
    return everywhere


def called(kind, f, *arguments, **options):
    """voxgrad must not refuse what PyTorch computes."""
    try:
        return f(*arguments, **options)
    except (voxgrad.VoxError, voxgrad.WildError, voxgrad.Inexpressible) as error:
        raise Failure(kind, -1, str(error)) from error


def attempt(error, f, *arguments, **options):
    """(what f returns, "") or (None, the message of the error)."""
    try:
        return f(*arguments, **options), ""
    except error as e:
        return None, str(e)


def stale(theirs_says, ours_says, counts):
    """A write has changed what a node saved: both must say so."""
    if "modified by an inplace operation" not in theirs_says or "was written in place since" not in ours_says:
        raise Failure("stale", -1, f"voxgrad: {ours_says or 'no error'}; PyTorch: {theirs_says or 'no error'}")
    counts["stale tensor refused by both", ""] += 1


def check(graph, theirs_values, counts):
    """Throws Failure where voxgrad and PyTorch differ."""
    mine = called("refused", ours.run, graph, torch.float64)
    refs = [(i, n) for i in graph.nodes for n, r in enumerate(theirs_values[i])]
    compare("value", graph, refs, ours.read(pick(mine, refs)), pick(theirs_values, refs), counts)

    outputs = [key(o) for o in graph.outputs]
    inputs = differentiable(graph, theirs_values)
    start = [c.requires_grad_() for c in cotangents(graph, theirs_values)]
    my_start = [voxgrad.tensor(c.detach(), True) for c in start]
    want, their_error = attempt(RuntimeError, theirs.grad, pick(theirs_values, outputs), start, pick(theirs_values, inputs),
                                create_graph=True)
    got, my_error = attempt(voxgrad.VoxError, ours.grad, pick(mine, outputs), my_start, pick(mine, inputs), create_graph=True)
    if their_error or my_error:
        return stale(their_error, my_error, counts)
    scale = compare("gradient", graph, inputs, ours.read(got), want, counts)

    known = [n for n, (g, w, ref) in enumerate(zip(got, want, inputs))
             if g is not None and w.requires_grad and graph.nodes[ref[0]].op == "leaf"]
    # By leaves and cotangents alone: whether a formula of a gradient reads an op's operand or its result is free.
    leaves = differentiable(graph, theirs_values, leaves_only=True)
    if not known:
        return
    r = random.Random(-graph.seed)
    second = [drawn(want[n].shape, r.randrange(10**9)) for n in known]
    inputs2 = leaves + [(-1 - n, 0) for n in range(len(start))]
    want2, their_error = attempt(RuntimeError, theirs.grad, [want[n] for n in known], second,
                                 pick(theirs_values, leaves) + start)
    got2, my_error = attempt(voxgrad.VoxError, ours.grad, [got[n] for n in known], [voxgrad.tensor(s) for s in second],
                             pick(mine, leaves) + my_start)
    if their_error or my_error:
        return stale(their_error, my_error, counts)
    compare("second gradient", graph, inputs2, ours.read(got2), want2, counts, scale)
