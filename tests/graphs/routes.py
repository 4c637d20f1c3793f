"""Every route to the same numbers gives the same bits: within one process, between processes, and on a GPU."""

import functools
import hashlib
import random

import torch

import judge
import ours
import relations
import voxgrad
from graph import key
from judge import Failure, called, pick
from voxgrad import vox

BITS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}


def bits(t):
    return t if t is None else t.contiguous().view(BITS[t.element_size()]) if t.dtype != torch.bool else t


def same(a, b):
    return (a is None) == (b is None) and (a is None or (a.shape == b.shape and torch.equal(bits(a), bits(b))))


class Plan:
    """A graph in one dtype, and what each run of it computes: results, and gradients by leaves."""

    def __init__(self, graph, values, dtype):
        self.graph, self.dtype = graph, dtype
        self.outputs = [key(o) for o in graph.outputs]
        self.leaves = judge.differentiable(graph, values, leaves_only=True)
        self.refs = [(i, n) for i, node in graph.nodes.items() if node.op != "leaf" for n in range(len(values[i]))]
        self.start = [voxgrad.tensor(c.to(dtype)) for c in judge.cotangents(graph, values)]

    def forward(self, segment=(), graph=None):
        return ours.run(graph or self.graph, self.dtype, segment)

    def gradients(self, mine, **options):
        return ours.grad(pick(mine, self.outputs), self.start, pick(mine, self.leaves), **options)

    def run(self, segment=(), graph=None, **options):
        mine = self.forward(segment, graph)
        refs = [(i, n) for i, n in self.refs if i in mine and n < len(mine[i]) and mine[i][n] is not None]
        return dict(zip(refs, ours.read(pick(mine, refs)))), ours.read(self.gradients(mine, **options))


def compare(route, plan, got, want, counts):
    """Both are (results by reference, gradients by leaves)."""
    where = f"route {route}"
    for ref, t in got[0].items():
        counts[where, plan.graph.nodes[ref[0]].op] += 1
        if not same(t, want[0][ref]):
            raise Failure(where, ref[0], f"{plan.graph.nodes[ref[0]].op}, {plan.dtype}: other bits")
    for (i, _), a, b in zip(plan.leaves, got[1], want[1]):
        counts[where, "gradient"] += 1
        if not same(a, b):
            raise Failure(where + " gradient", i, f"{plan.dtype}: other bits, {difference(a, b)}")


def difference(a, b):
    if a is None or b is None:
        return "or no gradient"
    return f"by up to {(a.double() - b.double()).abs().max().item():.3g} of {b.double().abs().max().item():.3g}"


def check(graph, values, dtype, counts):
    """All routes of this process. Returns what the plain one computes."""
    plan = Plan(graph, values, dtype)
    voxgrad.set_threads(1)
    plain = called("refused", plan.run)
    mine = plan.forward()
    for time in ("retain_graph, once", "retain_graph, twice"):
        compare(time, plan, ({}, ours.read(plan.gradients(mine, retain_graph=True))), plain, counts)
    if len(graph.outputs) == 1:
        compare("backward", plan, ({}, ours.read(ours.backward(
            pick(mine, plan.outputs)[0], plan.start[0], pick(mine, plan.leaves)))), plain, counts)
    del mine
    with ours.autocast_off():
        compare("autocast off", plan, plan.run(), plain, counts)
    voxgrad.set_threads(2)
    compare("2 threads", plan, plan.run(), plain, counts)
    steps = list(graph.ops())
    r = random.Random(graph.seed)
    first = r.randrange(len(steps))
    segment = steps[first:first + r.randint(1, len(steps))]
    compare("checkpoint", plan, called("refused", plan.run, segment), plain, counts)
    related(plan, values, plain, counts)
    if ours.has_dist() and dtype != torch.float16:  # a share of a f16 may be too small
        data_parallel(plan, counts)
    if voxgrad._device == "cuda":
        compare("again", plan, plan.run(), plain, counts)
        captured(plan, plain, counts)
    return plain


def normal(found):
    """With 0 for numbers so small that they have fewer bits than four times as large ones."""
    def flushed(t):
        small = t is not None and t.is_floating_point() and t.abs() < torch.finfo(t.dtype).tiny
        return t if small is False else t.masked_fill(small, 0)
    return {ref: flushed(t) for ref, t in found[0].items()}, [flushed(t) for t in found[1]]


def related(plan, values, plain, counts):
    """One of the relations: bits for a factor, and in f64 what rounding allows for the others."""
    names = list(relations.RELATIONS)
    name = names[plan.graph.seed % len(names)] if plan.dtype == torch.float64 else "factor 4"
    changed = relations.applied(name, plan.graph, values) if plan.dtype != torch.float16 else None  # 4 x may be too large
    if not changed:
        return
    got = called("refused", plan.run, graph=changed)
    if name == "factor 4":  # beside factor 1, because a product is dense, and sums depend on the order in memory
        compare(name, plan, *map(normal, (got, plan.run(graph=relations.applied(name, plan.graph, values, 1.0)))), counts)
        return
    judge.compare(name, plan.graph, list(got[0]), list(got[0].values()), [plain[0][ref] for ref in got[0]], counts)
    known = [(ref, g, w) for ref, g, w in zip(plan.leaves, got[1], plain[1]) if w is not None]
    start = judge.cotangents(plan.graph, values)
    judge.compare(name + " gradient", plan.graph, *zip(*known), counts, *judge.of_gradients(start))


def data_parallel(plan, counts):
    """The shares of all ranks, which compute the same, are the gradient."""
    made = ours.leaves(plan.graph, plan.dtype)
    for i, n in plan.leaves:  # dense, because rank 0's are copied into them
        made[i][n] = voxgrad.tensor(made[i][n].torch(), True)

    def loss():
        outputs = pick(ours.run(plan.graph, plan.dtype, made=made), plan.outputs)
        return functools.reduce(vox.add, [vox.sum(vox.mul(y, g), (), False) for y, g in zip(outputs, plan.start)])
    inputs = pick(made, plan.leaves)
    value = loss()
    want = ours.read(ours.grad([value], [vox.full_like(value, 1.0)], inputs))
    compare("data parallel", plan, ({}, ours.read(ours.data_parallel(loss, inputs))), ({}, want), counts)


def captured(plan, plain, counts):
    """One capture, two replays."""
    kept = {}

    def step():
        kept["values"] = ours.run(plan.graph, plan.dtype, made=kept["leaves"])
        kept["gradients"] = plan.gradients(kept["values"])
    kept["leaves"] = ours.leaves(plan.graph, plan.dtype)
    try:
        ours.capture(step, 2)
    except voxgrad.VoxError as error:
        if "copies between host and device are not allowed" not in str(error):
            raise
        counts["no captured graph: it copies between host and device", ""] += 1
        return
    got = dict(zip(plan.refs, ours.read(pick(kept["values"], plan.refs)))), ours.read(kept["gradients"])
    compare("captured graph", plan, got, plain, counts)


def digest(plain):
    """The bits of what one run computes, for other processes."""
    h = hashlib.sha256()
    for t in [*plain[0].values(), *plain[1]]:
        h.update(b"none" if t is None else bits(t).numpy().tobytes())
    return h.hexdigest()
