"""A graph: nodes that call ops on the results of earlier nodes, and outputs. Its text replays anywhere.

    graph 17 unet
    %0 leaf [[2, 3, 8, 8]] {"draw": 5, "kind": "normal", "grad": true}
    %1 nn.functional.silu ["%0"] {}
    out ["%1"]

A node is a name of tests/opinfo/ops.py, its arguments and its keyword arguments as JSON. "%1" is the result of node 1,
"%1.2" the third result of a node with several.
"""

import json
import random

import torch

from oracle import LAY_OUT


class Node:
    def __init__(self, op, args, kwargs):
        self.op, self.args, self.kwargs = op, args, kwargs
        self.copied = False  # a result of PyTorch's was made dense, so that it is not the tensor that PyTorch saved

    def refs(self):
        """What it refers to: (node, result)."""
        found = []
        map_refs([self.args, self.kwargs], lambda ref: found.append(key(ref)))
        return found

    def replaced(self, replace):
        """The same node with replace(reference) in the place of each reference."""
        return Node(self.op, map_refs(self.args, replace), map_refs(self.kwargs, replace))

    def __str__(self):
        return f"{self.op} {json.dumps(self.args)} {json.dumps(self.kwargs)}"


class Graph:
    def __init__(self, seed, kind):
        self.seed, self.kind, self.nodes, self.outputs = seed, kind, {}, []

    def __str__(self):
        lines = [f"graph {self.seed} {self.kind}"] + [f"%{i} {node}" for i, node in self.nodes.items()]
        return "\n".join(lines + [f"out {json.dumps(self.outputs)}"]) + "\n"

    def copy(self, nodes, outputs):
        """With other nodes and outputs; only what the outputs need."""
        graph = Graph(self.seed, self.kind)
        needed, pending = set(), [key(ref)[0] for ref in outputs]
        while pending:
            i = pending.pop()
            if i not in needed:
                needed.add(i)
                pending += [j for j, _ in nodes[i].refs()]
        graph.nodes = {i: node for i, node in nodes.items() if i in needed}
        graph.outputs = list(outputs)
        return graph

    def ops(self):
        """The nodes that are no leaves."""
        return {i: node for i, node in self.nodes.items() if node.op != "leaf"}


def parse(text):
    decode = json.JSONDecoder().raw_decode
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    _, seed, kind = lines[0].split()
    graph = Graph(int(seed), kind)
    for line in lines[1:-1]:
        name, op, rest = line.split(" ", 2)
        args, end = decode(rest)
        graph.nodes[int(name[1:])] = Node(op, args, json.loads(rest[end:]))
    graph.outputs = json.loads(lines[-1].split(" ", 1)[1])
    return graph


def is_ref(value):
    return isinstance(value, str) and value.startswith("%")


def key(ref):
    """"%3.1" as (3, 1)."""
    node, _, result = ref[1:].partition(".")
    return int(node), int(result or 0)


def map_refs(value, replace):
    if is_ref(value):
        return replace(value)
    if isinstance(value, (list, tuple)):
        return [map_refs(v, replace) for v in value]
    if isinstance(value, dict):
        return {k: map_refs(v, replace) for k, v in value.items()}
    return value


def resolved(node, values):
    """Its arguments with tensors for references, and tuples for lists of numbers, as PyTorch wants them."""
    def value_of(v):
        if is_ref(v):
            i, result = key(v)
            return values[i][result]
        if isinstance(v, list):
            items = [value_of(x) for x in v]
            return items if v and all(is_ref(x) for x in v) else tuple(items)
        return v
    return [value_of(v) for v in node.args], {k: value_of(v) for k, v in node.kwargs.items()}


def drawn(shape, draw, kind="normal", scale=1.0):
    """Numbers of a leaf, the same with any PyTorch: f64, i64 or bool."""
    r, n = random.Random(draw), 1
    for size in shape:
        n *= size
    if kind.startswith("index"):  # index:5 is below 5
        below = int(kind.partition(":")[2])
        return torch.tensor([r.randrange(below) for _ in range(n)], dtype=torch.int64).reshape(shape)
    if kind == "mask":
        return torch.tensor([r.random() < 0.5 for _ in range(n)], dtype=torch.bool).reshape(shape)
    numbers = [r.gauss(0, scale) for _ in range(n)] if kind == "normal" else [r.uniform(0.3, 1.7) for _ in range(n)]
    return torch.tensor(numbers, dtype=torch.float64).reshape(shape)


def leaf(node, dtype=torch.float64):
    """The tensor of a leaf in its layout, rounded to the dtype."""
    options = node.kwargs
    t = drawn(node.args[0], options["draw"], options.get("kind", "normal"), options.get("scale", 1.0))
    if t.is_floating_point():
        t = t.to(dtype)
    return LAY_OUT[options.get("layout", "given")](t, options["draw"])
