"""Random graphs: U-Nets of one to three axes, and irregular ones. The same seed gives the same graph.

PyTorch computes each node while the graph grows. Rule for ties: a node is taken only if neither its results nor its
first and second gradients change by more than LIPSCHITZ times the scale when its operands move by MOVE, up or down. So no
operand lies at a kink (relu at 0, equal maxima, huber at delta), and no node is so ill-conditioned that rounding errors of
f64 could reach the tolerance.
"""

import math
import random

import torch

import irregular as ops_of
import theirs
from graph import Graph, Node, key, leaf, resolved

MOVE, LIPSCHITZ, LARGEST_VALUE = 1e-7, 1e-3, 300


class Unsuitable(Exception):
    """A node that the rules above, or PyTorch, do not allow."""


class Builder:
    def __init__(self, seed, kind, largest):
        self.random, self.largest = random.Random(f"{kind} {seed}"), largest
        self.graph, self.values = Graph(seed, kind), {}

    def __getitem__(self, ref):
        """The tensor that a reference stands for."""
        i, result = key(ref)
        return self.values[i][result]

    def keep(self, node, results):
        i = len(self.graph.nodes)
        self.graph.nodes[i], self.values[i] = node, results
        return f"%{i}"

    def leaf(self, shape, kind="normal", grad=True, **options):
        grad = grad and kind in ("normal", "positive")
        node = Node("leaf", [list(shape)], {"draw": self.random.randrange(10**9), "kind": kind, "grad": grad, **options})
        return self.keep(node, [leaf(node).requires_grad_(grad)])

    def add(self, op, *args, **kwargs):
        node = Node(op, list(args), kwargs)
        try:
            results = theirs.call(node, self.values)
            tensors = [r for r in results if r.is_floating_point()]
            if not all(0 < r.numel() <= self.largest and r.dim() <= 6 for r in results):
                raise Unsuitable(f"{op}: size")
            if not all(r.isfinite().all() and r.detach().abs().max() < LARGEST_VALUE for r in tensors):
                raise Unsuitable(f"{op}: large")
            check_smooth(node, self.values)
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            raise Unsuitable(f"{op}: {error}") from error
        return self.keep(node, results)

    def maybe(self, x, op, *args, **kwargs):
        """op(x, ...), or x where that is unsuitable."""
        try:
            return self.add(op, x, *args, **kwargs)
        except Unsuitable:
            return x

    def floating(self):
        """References to all floating tensors."""
        return [f"%{i}" if n == 0 else f"%{i}.{n}" for i, results in self.values.items()
                for n, r in enumerate(results) if r.is_floating_point()]

    def finish(self, outputs):
        """The graph with the outputs that require grad, and the values of its nodes."""
        outputs = [o for o in dict.fromkeys(outputs) if self[o].requires_grad]
        if not outputs:
            raise Unsuitable("nothing requires grad")
        graph = self.graph.copy(self.graph.nodes, outputs)
        return graph, {i: self.values[i] for i in graph.nodes}


def check_smooth(node, values):
    """Throws Unsuitable if the node is at or near a kink."""
    refs = list(dict.fromkeys(node.refs()))
    moved = [moved_node(node, values, refs, sign) for sign in (1, -1)]
    for up, down in zip(*moved):
        if not up.is_floating_point():
            if not torch.equal(up, down):
                raise Unsuitable(f"{node.op}: a tie")
        elif not (up - down).abs().max() <= LIPSCHITZ * max(1.0, up.abs().max().item()):
            raise Unsuitable(f"{node.op}: near a kink")


def moved_node(node, values, refs, sign):
    """Results, gradients and second gradients of the node on operands that are moved, each differently."""
    noise = torch.Generator().manual_seed(1)
    local, inputs = {i: list(values[i]) for i, _ in refs}, []
    for i, result in refs:
        t = values[i][result]
        if t.is_floating_point():
            by = sign * MOVE * (0.5 + torch.rand(t.shape, dtype=t.dtype, generator=noise))
            by = by * (1 - 2 * torch.randint(2, t.shape, generator=noise))
            local[i][result] = (t.detach() + by).requires_grad_(t.requires_grad)
            inputs += [local[i][result]] if t.requires_grad else []
    results = theirs.call(node, local)
    found = [r.detach() for r in results]
    outputs = [r for r in results if r.requires_grad]
    for _ in range(2 if inputs else 0):
        if not outputs:
            break
        cotangents = [torch.randn(o.shape, dtype=o.dtype, generator=noise) for o in outputs]
        gradients = theirs.grad(outputs, cotangents, inputs, create_graph=True)
        found += [g.detach() for g in gradients]
        outputs = [g for g in gradients if g.requires_grad]
    return found


# ---- U-Nets ------------------------------------------------------------------------------------------------------


def unet(seed):
    b = Builder(seed, "unet", 40000)
    r = b.random
    axes, depth = r.choice((1, 2, 2, 3, 3)), r.choice((1, 1, 2, 2, 3))
    n, channels, classes = r.choice((1, 2, 2, 3)), r.randint(1, 5), r.randint(1, 4)
    small = {1: (1, 4), 2: (1, 3), 3: (1, 2)}[axes]
    sizes = [2**depth * r.randint(*small) for _ in range(axes)]
    if r.random() < 0.04:  # large enough for two threads and for blocked kernels
        sizes, channels = {1: [512], 2: [32, 48], 3: [16, 16, 16]}[axes], 8
    if r.random() < 0.15:
        sizes[0] += 1  # an odd size: the skip is cut
    net = Unet(b, axes, r.choice((None, None, "batch", "batch eval", "instance", "group")), r.choice(ops_of.ACTIVATIONS))
    x = b.leaf([n, r.randint(1, 3), *sizes], layout=r.choice(("given", "given", "strided", "transposed")))
    skips, outputs = [], []
    for level in range(depth):
        x = net.block(x, channels << level)
        skips.append(x)
        x = net.down(x)
    x = net.block(x, channels << depth)
    for level in reversed(range(depth)):
        x = net.join(net.up(x), skips[level])
        x = net.block(x, channels << level)
        if r.random() < 0.3:  # deep supervision
            outputs.append(net.loss(net.convolution(x, classes, 1)))
    outputs.append(net.loss(net.convolution(x, classes, 1)))
    return b.finish(outputs)


class Unet:
    def __init__(self, b, axes, norm, activation):
        self.b, self.r, self.axes, self.norm, self.activation = b, b.random, axes, norm, activation

    def convolution(self, x, channels, kernel, transpose=False, **options):
        b, inside = self.b, self.b[x].shape[1]
        groups = options.pop("groups", 1)
        shape = [inside, channels // groups] if transpose else [channels, inside // groups]
        weight = b.leaf(shape + [kernel] * self.axes, scale=(inside * kernel**self.axes) ** -0.5)
        bias = b.leaf([channels], scale=0.3) if self.r.random() < 0.6 else None
        name = "conv_transpose" if transpose else "conv"
        return b.add(f"nn.functional.{name}{self.axes}d", x, weight, bias, groups=groups, **options)

    def normalise(self, x):
        b, channels = self.b, self.b[x].shape[1]
        affine = self.r.random() < 0.7
        weight = b.leaf([channels], "positive") if affine else None
        bias = b.leaf([channels]) if affine else None
        if self.norm == "group":
            groups = ops_of.groups_of(b, x, 4)
            return x if not groups else b.maybe(x, "nn.functional.group_norm", self.r.choice(groups), weight, bias)
        if self.norm == "instance":
            return b.maybe(x, "nn.functional.instance_norm", None, None, weight, bias)
        mean, var = (b.leaf([channels], grad=False), b.leaf([channels], "positive", grad=False)) if (
            self.norm == "batch eval" or self.r.random() < 0.3) else (None, None)
        return b.maybe(x, "nn.functional.batch_norm", mean, var, weight, bias, training=self.norm == "batch")

    def block(self, x, channels):
        before = x
        for _ in range(self.r.choice((1, 1, 2))):
            kernel = self.r.choice((1, 3, 3))
            dilation = self.r.choice((1, 1, 1, 2))
            inside = self.b[x].shape[1]
            groups = self.r.choice((1, 1, 1, 2)) if inside % 2 == channels % 2 == 0 else 1
            x = self.convolution(x, channels, kernel, padding=kernel // 2 * dilation, dilation=dilation, groups=groups)
            x = self.normalise(x) if self.norm else x
            x = self.b.maybe(x, f"nn.functional.{self.activation}")
        if self.b[before].shape == self.b[x].shape and self.r.random() < 0.6:
            x = self.b.maybe(x, "add", before)
        return x

    def down(self, x):
        how, channels = self.r.choice(("max", "avg", "conv", "conv3", "slice")), self.b[x].shape[1]
        pool = self.b.maybe(x, f"nn.functional.{how}_pool{self.axes}d", 2, 2) if how in ("max", "avg") else x
        if pool != x:
            return pool
        if how == "slice" and self.axes == 2:
            return self.b.add("nn.functional.pixel_unshuffle", self.even(x), 2)
        return self.convolution(self.even(x), channels, 3, stride=2, padding=1) if how == "conv3" else (
            self.convolution(self.even(x), channels, 2, stride=2))

    def even(self, x):
        """x without its last cell along axes of odd size."""
        for dim, size in enumerate(self.b[x].shape[2:], 2):
            if size % 2 and size > 1:
                x = self.b.add("narrow", x, dim, 0, size - 1)
        return x

    def up(self, x):
        how, channels = self.r.choice(("2", "3", "4", "nearest", "linear")), max(1, self.b[x].shape[1] // 2)
        if how == "nearest":
            return self.b.add("nn.functional.interpolate.nearest", x, scale_factor=2, mode="nearest")
        if how == "linear":
            mode = ("linear", "bilinear", "trilinear")[self.axes - 1]
            return self.b.add(f"nn.functional.interpolate.{mode}", x, scale_factor=2, mode=mode,
                              align_corners=self.r.random() < 0.3)
        more = {"2": {}, "3": {"padding": 1, "output_padding": 1}, "4": {"padding": 1}}[how]
        return self.convolution(x, channels, int(how), transpose=True, stride=2, **more)

    def join(self, x, skip):
        b = self.b
        for dim, (have, want) in enumerate(zip(b[x].shape[2:], b[skip].shape[2:]), 2):
            if have < want:
                skip = b.add("narrow", skip, dim, 0, have)
            if have > want:
                x = b.add("narrow", x, dim, 0, want)
        if b[x].shape == b[skip].shape and self.r.random() < 0.4:
            if self.r.random() < 0.5:  # an attention gate
                skip = b.add("mul", skip, b.add("sigmoid", x))
            return b.add("add", x, skip)
        return b.add("cat", [x, skip], 1)

    def loss(self, x):
        b, shape = self.b, list(self.b[x].shape)
        how = self.r.choice(("none", "none", "mse", "smooth_l1", "huber", "logits", "cross_entropy", "dice"))
        if how == "cross_entropy":
            target = b.leaf([shape[0], *shape[2:]], f"index:{shape[1]}")
            return b.maybe(x, "nn.functional.cross_entropy", target, label_smoothing=self.r.choice((0.0, 0.1)))
        if how == "logits":
            return b.maybe(x, "nn.functional.binary_cross_entropy_with_logits", b.leaf(shape, "positive", grad=False))
        if how == "dice":
            p, t = b.add("softmax", x, 1), b.leaf(shape, "positive", grad=False)
            return b.add("div", b.add("sum", b.add("mul", p, t), [2]), b.add("add", b.add("sum", p, [2]), 1))
        return x if how == "none" else b.maybe(x, f"nn.functional.{how}_loss", b.leaf(shape),
                                               reduction=self.r.choice(("none", "mean", "sum")))


# ---- Irregular graphs ----------------------------------------------------------------------------------------


def irregular(seed):
    b = Builder(seed, "irregular", 600)
    r = b.random
    for _ in range(r.randint(1, 3)):
        b.leaf([r.randint(1, 5) for _ in range(r.randint(1, 4))],
               layout=r.choice(("given", "given", "strided", "transposed", "expanded")))
    for _ in range(r.randint(4, 24)):
        candidates = b.floating()
        # Mostly one of the latest, or one that is used already.
        x = r.choice(candidates[-4:] if r.random() < 0.7 else candidates)
        try:
            ops_of.grow(b, x)
        except (Unsuitable, IndexError, ValueError):  # the step does not fit x
            continue
    ends = [f"%{i}" for i, node in b.graph.nodes.items() if node.op != "leaf" and b.values[i][0].requires_grad]
    return b.finish(ends[-1:] + r.sample(ends, min(len(ends), r.randint(0, 2))) if ends else [])


def written(seed):
    """An irregular graph, and behind one of its nodes a write, which the tape does not see, into memory that it may need."""
    base, values = irregular(seed)
    r = random.Random(f"written {seed}")
    graph, last = Graph(seed, "written"), r.choice(list(base.ops()))
    targets = [i for i in values if i <= last and values[i][0].requires_grad]
    if not targets:
        raise Unsuitable("nothing to write to")
    target = r.choice(targets)
    steps, shape, how = ops_of.drawn_write(r, values[target][0].detach())
    if 0 in values[target][0].stride():
        raise Unsuitable("elements that share memory")
    if how == "fill_" and math.prod(shape) > 1:
        how = "copy_"  # equal elements have no order
    operand, made = max(values) + 1, max(values) + 2
    for i, node in base.nodes.items():
        graph.nodes[i] = node.replaced(lambda ref: f"%{made}" if i > last and ref == f"%{target}" else ref)
        if i == last:
            graph.nodes[operand] = Node("leaf", [shape], {"draw": r.randrange(10**9), "kind": "positive", "grad": False})
            graph.nodes[made] = Node("overwrite", [f"%{target}", steps, how, 0.75 if how == "fill_" else f"%{operand}"], {})
    graph = graph.copy(graph.nodes, [*base.outputs, f"%{made}"])
    try:
        values = theirs.run(graph)
    except RuntimeError as error:
        raise Unsuitable(str(error)) from error
    for node in graph.ops().values():
        check_smooth(node, values)
    return graph, values


KINDS = {"unet": unet, "irregular": irregular, "written": written}


def make(seed, kind):
    """(graph, values in PyTorch), or None where no graph came about."""
    try:
        return KINDS[kind](seed)
    except Unsuitable:
        return None
