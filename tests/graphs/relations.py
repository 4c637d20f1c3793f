"""Graphs that must give the same: in each, nodes get operands that are moved, split or scaled, and their results are put
back. A graph in which all nodes have their samples moved is the graph on moved samples, because what one node puts back
and the next one moves again cancels.
"""

import random

from graph import Graph, Node, is_ref, key

POINTWISE = ("neg abs exp sin cos tanh sigmoid erf expm1 relu leaky_relu gelu silu elu mish softplus hardtanh relu6 "
             "softsign tanhshrink").split()
REDUCTIONS = ("sum", "mean", "amax", "amin", "logsumexp", "var", "std", "vector_norm", "prod")
# What is done to the nodes (a letter of moves(), "x" is a factor), and along which axis of the first operand; None is any.
RELATIONS = {"samples rolled": ("r", 0), "samples split": ("s", 0), "channels rolled": ("r", 1), "axes rolled": ("r", None),
             "axes flipped": ("f", None), "windows shifted": ("w", None), "factor 4": ("x", None)}


def moves(node, shape):
    """What may be moved together: ({argument: axis}, the result's axis or None, "rfsw" of what is allowed: roll, flip,
    split, window after window). shape(n) is that of argument n."""
    name, args, kwargs = node.op.rpartition(".")[2], node.args, node.kwargs
    d = len(shape(0)) if args and is_ref(args[0]) else 0
    cells = range(2, d)
    if name.startswith("conv"):
        out, inside = (1, 0) if "transpose" in name else (0, 1)
        yield {0: 0}, 0, "rfs"
        if kwargs.get("groups", 1) == 1:
            yield {0: 1, 1: inside}, None, "rf"
            yield {1: out, 2: 0}, 1, "rfs"
        for k in cells:
            reach, stride = window(node, shape, k)
            unread = (shape(0)[k] + 2 * kwargs.get("padding", 0) - reach) % stride
            if "transpose" not in name and not kwargs.get("padding", 0) and shape(0)[k] >= reach + stride:
                yield {0: k}, k, "w"
            if (kwargs.get("output_padding", 0) if "transpose" in name else unread) == 0:
                yield {0: k, 1: k}, k, "f"
    elif "interpolate" in node.op or "pool" in name:
        yield {0: 0}, 0, "rfs"
        yield {0: 1}, 1, "rfs"
        for k in cells:
            if kwargs.get("align_corners"):
                continue  # one cell of a result is the first of x
            if len(args) == 3 and shape(0)[k] >= args[1] + args[2]:
                yield {0: k}, k, "w"
            if len(args) < 3 or (shape(0)[k] + 2 * (args[3] if len(args) > 3 else 0) - args[1]) % args[2] == 0:
                yield {0: k}, k, "f"
    elif name in ("batch_norm", "instance_norm", "group_norm"):
        yield {0: 0}, 0, "rf" if kwargs.get("training") or d < 3 else "rfs"
        if name != "group_norm":
            yield {0: 1, 1: 0, 2: 0, 3: 0, 4: 0}, 1, "rfs"
        for k in cells:
            yield {0: k}, k, "rf"
    elif name == "layer_norm":
        for k in range(d):
            j = k - d + len(args[1])
            yield ({0: k}, k, "rfs") if j < 0 else ({0: k, 2: j, 3: j}, k, "rf")
    elif name == "linear":
        yield {0: -1, 1: -1}, None, "rf"
        yield {1: 0, 2: 0}, -1, "rfs"
    elif name in POINTWISE:
        for k in range(d):
            yield {0: k}, k, "rfs"
    elif name in ("add", "sub", "mul", "maximum", "minimum"):
        for k in range(d if is_ref(args[1]) and shape(0) == shape(1) else 0):
            yield {0: k, 1: k}, k, "rfs"
    elif name in ("matmul", "bmm") and d > 1 and len(shape(1)) > 1:
        yield {0: -1, 1: -2}, None, "rf"
        yield {0: -2}, -2, "rfs"
        yield {1: -1}, -1, "rfs"
    elif name in REDUCTIONS:
        for k in args[1] if isinstance(args[1], list) else []:
            yield {0: k}, None, "rf"
    elif name in ("softmax", "log_softmax"):
        for k in range(d):
            yield {0: k}, k, "rf" if k == args[1] % d else "rfs"
    elif name.endswith("_loss") and shape(0) == shape(1) or name == "cross_entropy":
        for k in range(d if name != "cross_entropy" else 1):
            yield {0: k, 1: k}, k if kwargs.get("reduction") == "none" else None, "rf"


def window(node, shape, k):
    """How many cells along axis k an output reads, and how far from it the next one begins."""
    if ".conv" in node.op:
        return (shape(1)[k] - 1) * node.kwargs.get("dilation", 1) + 1, node.kwargs.get("stride", 1)
    return node.args[1], node.args[2]


def scaled(node):
    """The argument groups in which the op is linear."""
    name = node.op.rpartition(".")[2]
    if name.startswith("conv") or node.op == "nn.functional.linear":
        return [(0, 2), (1, 2)]
    if name in ("matmul", "bmm"):
        return [(0,), (1,)]
    if name in ("add", "sub") and is_ref(node.args[1]):
        return [(0, 1)]
    linear = "pool" in name or "interpolate" in node.op or name in (
        "sum", "mean", "amax", "amin", "relu", "leaky_relu", "neg", "cumsum", "flip", "roll", "transpose", "narrow", "select")
    return [(0,)] if linear else []


def applied(relation, graph, values, factor=4.0):
    """The graph with all nodes changed that allow it, under their old numbers; None if none does."""
    how, wanted = RELATIONS[relation]
    r, changed = random.Random(f"{relation} {graph.seed}"), Graph(graph.seed, graph.kind)
    changed.outputs = graph.outputs

    def add(node):
        i = max([*graph.nodes, *changed.nodes]) + 1
        changed.nodes[i] = node
        return f"%{i}"

    for i, node in graph.nodes.items():
        def shape(n):
            return values[key(node.args[n])[0]][key(node.args[n])[1]].shape

        def with_operands(change, axes):
            args = [change(a, axes[n]) if n in axes and is_ref(a) else a for n, a in enumerate(node.args)]
            return Node(node.op, args, node.kwargs)

        def moved(ref, axis, by=1):
            return Node("flip", [ref, axis], {}) if how == "f" else Node("roll", [ref, by, axis], {})

        changed.nodes[i] = node
        if node.op == "leaf" or len(values[i]) > 1:
            continue
        if how == "x":
            options = [(dict.fromkeys(group), 0) for group in scaled(node)]
        else:
            options = [(axes, to) for axes, to, allowed in moves(node, shape)
                       if how in allowed and wanted in (None, axes.get(0, to)) and (how != "s" or all(
                           shape(n)[axis] > 1 for n, axis in axes.items() if is_ref((node.args + [None] * 5)[n])))]
        if not options:
            continue
        del changed.nodes[i]
        axes, to = r.choice(options)
        if how == "x":
            node = Node("mul", [add(with_operands(lambda a, _: add(Node("mul", [a, factor], {})), axes)), 1 / factor], {})
        elif how in "sw":
            size = shape(min(axes))[axes[min(axes)]]
            if how == "s":
                begin = end = r.randint(1, size - 1)
            else:  # the first window, and the others
                end, begin = window(node, shape, axes[0])
            parts = [add(with_operands(lambda a, axis: add(Node("narrow", [a, axis, *part], {})), axes))
                     for part in ((0, end), (begin, size - begin))]
            node = Node("cat", [parts, to], {})
        else:
            node = with_operands(lambda a, axis: add(moved(a, axis)), axes)
            node = node if to is None else moved(add(node), to, -1)
        changed.nodes[i] = node
    return changed if len(changed.nodes) > len(graph.nodes) else None
