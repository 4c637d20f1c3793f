"""f32, bf16 and f16 against f64, node by node, within bounds that come from the operation itself.

Each node is repeated alone in f64, on the operands and on the gradient of its result that the graph has in the low
dtype; these numbers are exact in f64. So errors of earlier nodes do not count, and the bound is that of one op:

    |low - f64| <= roundings * (u |f64| + how far f64 moves if operands and gradient move by a factor of 1 +- u)

u is the unit roundoff of the dtype. The second part is the condition of the op. For sums of products it is the same op on
absolute values, in f32 times the root of the number of terms; for others it is measured along a few directions of random
signs (of the whole tensor, if it is a norm's, whose sums cancel), and at a kink covers the jump; if that does not suffice,
along many more. A gradient that several nodes send to one tensor has the sum of their bounds, and a
rounding for each addition. If every node keeps its bound, the graph is as exact as its ops allow.
"""

import math
from collections import Counter, defaultdict

import torch

import judge
import ours
import voxgrad
from graph import key
from judge import Failure, called, largest, pick

DIRECTIONS = (4, 64)
SUMS = ("conv", "matmul", "bmm", "linear", "bilinear", "trilinear", "nearest", "sum", "cumsum", "mean", "avg_pool",
        "adaptive_avg_pool")
# 16 bits are computed in f32 and rounded once; sums and functions inside an op of f32 are in f32 too.
ROUNDINGS = {torch.float32: 32, torch.bfloat16: 1.25, torch.float16: 1.25}
# Ops whose gradient reads the rounded result: g - g y^2 and its like cancel where y is near 1; roots move half as far.
# Ops that tests/opinfo composes of several round each step.
SATURATING = ("tanh", "sigmoid", "softmax", "log_softmax", "cross_entropy", "expm1", "tanhshrink")
ROOTS = ("sqrt", "rsqrt", "std")
NORMS = ("batch_norm", "instance_norm", "group_norm", "layer_norm")


def alone(node, operands, arriving, grads):
    """Results of the node in f64, and gradients of the operands `grads`."""
    local = {}
    for (i, n), t in operands.items():
        local.setdefault(i, {})[n] = voxgrad.tensor(t, (i, n) in grads)
    results = ours.call(node, local)
    known = [n for n, g in arriving.items() if results[n].requires_grad]
    found = ours.grad([results[n] for n in known], [voxgrad.tensor(arriving[n]) for n in known],
                      [local[i][n] for i, n in grads]) if known and grads else []
    return [t.double() for t in ours.read(results)], [
        torch.zeros_like(operands[ref]) if g is None else g for ref, g in zip(grads, ours.read(found) or [None] * len(grads))]


def moved(t, u, noise):
    return t * (1 + u * (2 * torch.randint(2, t.shape, generator=noise) - 1)) if t.is_floating_point() else t


def bounds(node, operands, arriving, grads, dtype, directions):
    """alone(), and for each of its tensors how far the same in `dtype` may be from it."""
    noise, u, name = torch.Generator().manual_seed(1), torch.finfo(dtype).eps / 2, node.op.rpartition(".")[2]
    exact = sum(alone(node, operands, arriving, grads), [])
    spread = [u * t.abs() for t in exact]

    def again(change):
        return sum(alone(node, *({k: change(t) for k, t in d.items()} for d in (operands, arriving)), grads), [])
    if name.startswith(SUMS):
        terms = max(t.numel() for t in [*operands.values(), *exact])  # or fewer; their roundings differ in sign
        more = u if dtype != torch.float32 else u * (1 + terms**0.5 / ROUNDINGS[dtype])
        spread = [torch.maximum(s, more * o) for s, o in zip(spread, again(torch.abs))]
    else:
        by = 2 * u if node.op in ROOTS else u
        others = [again(lambda t: moved(t, by, noise)) for _ in range(directions)]
        for n, t in enumerate(exact):
            moves = torch.stack([(other[n] - t).abs() for other in others]).amax(0)
            spread[n] += moves.amax() if name in NORMS else torch.maximum(moves, moves.mean())
            composed = node.op in ours.ENTRIES and ours.ENTRIES[node.op].composed
            if composed or name in SATURATING:
                sources = arriving if n >= len(exact) - len(grads) else operands
                spread[n] += (3 if composed else 1) * u * max(map(largest, sources.values()), default=0.0)
    smallest = torch.finfo(dtype).tiny * torch.finfo(dtype).eps
    with_bias = node.op == "nn.functional.linear" and dtype != torch.float32  # a product, and a sum with the bias
    roundings = ROUNDINGS[dtype] + with_bias
    return exact, [roundings * (s + smallest) for s in spread]


def pairs(node, x):
    """Whether the node, or its gradient, normalises pairs of numbers, to 1 and -1: the gradient consists of rounding
    errors, and no move of the operands shows those of the value."""
    name = node.op.rpartition(".")[2]
    statistics = {"batch_norm": lambda: x.shape[1], "instance_norm": lambda: x.shape[0] * x.shape[1],
                  "group_norm": lambda: x.shape[0] * node.args[1],
                  "layer_norm": lambda: x.numel() // math.prod(node.args[1]),
                  "std": lambda: x.numel() // math.prod(x.shape[d] for d in node.args[1])}.get(name)
    return statistics is not None and x.numel() <= 2 * statistics()


def check(graph, values, dtype, counts):
    mine = called("refused", ours.run, graph, dtype)
    refs = [(i, n) for i in graph.nodes for n in range(len(values[i]))]
    low = {ref: t.double() if t.is_floating_point() else t for ref, t in zip(refs, ours.read(pick(mine, refs)))}
    inputs = judge.differentiable(graph, values, copies_too=True)
    outputs = [key(o) for o in graph.outputs]
    start = [c.to(dtype) for c in judge.cotangents(graph, values)]
    found = ours.grad(pick(mine, outputs), [voxgrad.tensor(c) for c in start], pick(mine, inputs))
    gradient = {ref: g.double() for ref, g in zip(inputs, ours.read(found)) if g is not None}
    tensors = [t for t in [*gradient.values(), *low.values()] if t.is_floating_point()]
    if dtype == torch.float16 and not all(t.abs().max() < torch.finfo(dtype).max / 4 for t in tensors):
        counts["overflow in f16", ""] += 1
        return

    for directions in DIRECTIONS:
        try:
            return by_nodes(graph, values, low, gradient, start, inputs, dtype, counts, directions)
        except Failure:
            if directions == DIRECTIONS[-1]:
                raise


def by_nodes(graph, values, low, gradient, start, inputs, dtype, counts, directions):
    # Of each tensor: the sum of what its users send, of their bounds, and of their sizes.
    sums = defaultdict(lambda: [0.0, 0.0, 0.0])
    outputs = [key(o) for o in graph.outputs]
    for ref, c in zip(outputs, start):
        sums[ref] = [s + t for s, t in zip(sums[ref], (c.double(), 0.0, c.double().abs()))]
    senders, paired = Counter(outputs), set()
    for i, node in graph.ops().items():
        operands = {ref: low[ref] for ref in node.refs()}
        grads = [ref for ref in operands if values[ref[0]][ref[1]].requires_grad]
        results = [(i, n) for n in range(len(values[i]))]
        arriving = {n: gradient.get((i, n), torch.zeros_like(low[i, n])) for _, n in results if values[i][n].requires_grad}
        if pairs(node, low[node.refs()[0]]):
            paired |= set(grads)
            continue
        exact, allowed = bounds(node, operands, arriving, grads, dtype, directions)
        for ref, want, bound in zip(results, exact, allowed):
            hold(f"value in {dtype}", graph, ref, low[ref], want, bound, counts)
        for ref, want, bound in zip(grads, exact[len(results):], allowed[len(results):]):
            both = 2 * arriving[0].abs() if node.op == "sub" and node.refs().count(ref) > 1 else 0.0  # g and -g
            sums[ref] = [s + t for s, t in zip(sums[ref], (want, bound, want.abs() + both))]
            senders[ref] += 1 + (node.refs().count(ref) > 1)
    for ref in set(inputs) - paired:
        want, bound, sizes = sums[ref]
        if senders[ref]:
            bound = bound + (senders[ref] - 1) * torch.finfo(dtype).eps * sizes
            hold(f"gradient in {dtype}", graph, ref, gradient.get(ref, torch.zeros_like(want)), want, bound, counts)


def hold(kind, graph, ref, got, want, bound, counts):
    counts[kind, graph.nodes[ref[0]].op] += 1
    wrong = ~((got.double() - want).abs() <= bound)
    if wrong.any():
        at = tuple(wrong.nonzero()[0].tolist())
        raise Failure(kind, ref[0], f"{graph.nodes[ref[0]].op}: {wrong.sum().item()} of {want.numel()} elements, first at "
                      f"{at}: {got[at].item()!r}, f64 has {want[at].item()!r} +- {bound[at].item():.3g}")
