"""Makes a graph that fails smaller, as long as it fails in the same way."""

from collections import Counter

import theirs
from generate import Unsuitable, check_smooth
from graph import Node, key
from judge import Failure


def shrink(graph, failure, check):
    """check(graph, values, counts) throws Failure."""
    kind = failure.kind
    while True:
        for candidate, values in candidates(graph):
            if fails(candidate, values, kind, check):
                graph = candidate
                break
        else:
            return graph


def fails(graph, values, kind, check):
    try:
        for node in graph.ops().values():
            check_smooth(node, values)
        check(graph, values, Counter())
    except Failure as failure:
        return failure.kind == kind
    except (Unsuitable, RuntimeError, IndexError):
        pass
    return False


def candidates(graph):
    """Smaller graphs with their values: one output alone; an earlier node as output; a node as a leaf; a node left out."""
    for smaller in smaller_graphs(graph, theirs.run(graph)):
        try:
            values = theirs.run(smaller)
        except (RuntimeError, IndexError, ValueError):
            continue
        outputs = [values[i][n] for i, n in map(key, smaller.outputs)]
        if smaller.ops() and all(o.requires_grad for o in outputs):
            yield smaller, values


def smaller_graphs(graph, values):
    if len(graph.outputs) > 1:
        for output in graph.outputs:
            yield graph.copy(graph.nodes, [output])
    floating = {i: r[0] for i, r in values.items() if r[0].is_floating_point()}
    for i in graph.ops():
        if [f"%{i}"] != graph.outputs and i in floating:
            smaller = graph.copy(graph.nodes, [f"%{i}"])
            if len(smaller.nodes) < len(graph.nodes):
                yield smaller
    for i, node in reversed(graph.ops().items()):
        if i not in floating:
            continue
        t = floating[i]
        leaf = Node("leaf", [list(t.shape)], {"draw": i, "kind": "positive" if (t > 0).all() else "normal",
                                              "grad": t.requires_grad})
        if len(values[i]) == 1:
            smaller = graph.copy(graph.nodes | {i: leaf}, graph.outputs)
            if len(smaller.ops()) < len(graph.ops()) and smaller.ops():
                yield smaller
        for j, n in node.refs():
            if values[j][n].shape == t.shape and values[j][n].is_floating_point() and [f"%{i}"] != graph.outputs:
                def instead(ref, j=j, n=n):
                    return (f"%{j}.{n}" if n else f"%{j}") if key(ref) == (i, 0) else ref
                nodes = {k: other.replaced(instead) for k, other in graph.nodes.items()}
                yield graph.copy(nodes, [instead(o) for o in graph.outputs])
