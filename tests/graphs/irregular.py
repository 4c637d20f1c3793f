"""How an irregular graph grows: for each op, how its arguments are drawn for an operand x."""

ACTIVATIONS = ("relu", "leaky_relu", "gelu", "silu", "elu", "mish", "softplus", "hardtanh", "relu6")


def dim(b, x):
    return b.random.randrange(-b[x].dim(), b[x].dim())


def other(b, x, broadcast=True):
    """An earlier tensor of the shape of x, or a new leaf that broadcasts to it."""
    same = [f for f in b.floating() if b[f].shape == b[x].shape]
    if b.random.random() < 0.5:
        return b.random.choice(same)
    shape = [1 if broadcast and b.random.random() < 0.3 else n for n in b[x].shape]
    return b.leaf(shape[b.random.randrange(len(shape)) if shape and broadcast and b.random.random() < 0.2 else 0:])


def positive(b, x):
    return b.add("add", b.add("mul", x, x), 0.5)


def along(b, x):
    """A dimension and its size."""
    d = dim(b, x)
    return d, b[x].shape[d]


def permutation(b, x, d):
    """Indices of the shape of x that name each place along d once."""
    return b.add("argsort", b.leaf(b[x].shape, grad=False), d)


def some_dims(b, x):
    return sorted(b.random.sample(range(b[x].dim()), b.random.randint(1, b[x].dim())))


def drawn_write(r, t):
    """Views into t, as `write` takes them, the shape that they have, and an op in place."""
    steps = []
    for _ in range(r.randint(0, 2)):
        if t.dim() == 0:
            break
        d = r.randrange(t.dim())
        step = r.choice((["select", d, r.randrange(t.shape[d])], ["transpose", d, t.dim() - 1],
                         ["narrow", d, 0, r.randint(1, t.shape[d])], ["unsqueeze", d]))
        t = getattr(t, step[0])(*step[1:])
        steps.append(step)
    return steps, list(t.shape), r.choice(("add_", "sub_", "mul_", "div_", "copy_", "fill_"))


def write(b, x):
    """An in-place op on a view of a copy of x; both join the graph."""
    x = b.add("detach", x) if b.random.random() < 0.3 else x
    steps, shape, how = drawn_write(b.random, b[x].detach())
    written = b.add("write", x, steps, how, 0.75 if how == "fill_" else b.leaf(shape, "positive", b.random.random() < 0.5))
    return b.add("mul", written, x) if b.random.random() < 0.5 else written


def convolution(b, x):
    r, shape = b.random, b[x].shape
    axes, kernel = len(shape) - 2, b.random.choice((1, 2, 3))
    if axes not in (1, 2, 3):
        return None
    stride, padding, dilation = r.randint(1, 3), r.randint(0, 2), r.choice((1, 1, 2))
    transpose = r.random() < 0.5
    sizes = [kernel if r.random() < 0.7 else 1 for _ in range(axes)]
    out = r.randint(1, 4)
    weight = b.leaf(([shape[1], out] if transpose else [out, shape[1]]) + sizes, scale=0.5)
    bias = b.leaf([out]) if r.random() < 0.5 else None
    more = {"output_padding": r.randrange(max(stride, dilation))} if transpose else {}
    name = f"nn.functional.conv{'_transpose' if transpose else ''}{axes}d"
    return b.add(name, x, weight, bias, stride=stride, padding=padding, dilation=dilation, **more)


def pool(b, x):
    r, axes = b.random, b[x].dim() - 2
    if axes not in (1, 2, 3):
        return None
    kernel = r.choice((1, 2, 3))
    if r.random() < 0.4:
        how = r.choice(("adaptive_avg", "adaptive_max"))
        return b.add(f"nn.functional.{how}_pool{axes}d", x, [r.randint(1, 3) for _ in range(axes)])
    how, more = r.choice((("avg", {"count_include_pad": r.random() < 0.5}), ("max", {})))
    return b.add(f"nn.functional.{how}_pool{axes}d", x, kernel, r.randint(1, 2), r.randint(0, kernel // 2), **more)


def interpolate(b, x):
    r, axes = b.random, b[x].dim() - 2
    if axes not in (1, 2, 3):
        return None
    mode = r.choice(("nearest", ("linear", "bilinear", "trilinear")[axes - 1]))
    size = [n * r.randint(1, 3) if mode == "nearest" else r.randint(1, 5) for n in b[x].shape[2:]]
    more = {} if mode == "nearest" else {"align_corners": r.random() < 0.5}
    return b.add(f"nn.functional.interpolate.{mode}", x, size=size, mode=mode, **more)


def groups_of(b, x, most):
    """Numbers of groups, up to `most`, that have more than one element."""
    return [g for g in range(1, most + 1) if b[x].shape[1] % g == 0 and g * b[x].shape[0] < b[x].numel()]


def norm(b, x):
    r, shape = b.random, list(b[x].shape)
    how = r.choice(("batch", "instance", "group", "layer")) if len(shape) <= 5 else "layer"
    if how == "layer":
        tail = shape[r.randrange(len(shape)):]
        return b.add("nn.functional.layer_norm", x, tail, b.leaf(tail, "positive"), b.leaf(tail))
    weight, bias = (b.leaf([shape[1]], "positive"), b.leaf([shape[1]])) if r.random() < 0.6 else (None, None)
    if how == "group":
        return b.add("nn.functional.group_norm", x, r.choice(groups_of(b, x, 5)), weight, bias)
    if how == "instance":
        return b.add("nn.functional.instance_norm", x, None, None, weight, bias)
    train = r.random() < 0.5
    mean, var = (None, None) if train else (b.leaf([shape[1]], grad=False), b.leaf([shape[1]], "positive", grad=False))
    return b.add("nn.functional.batch_norm", x, mean, var, weight, bias, training=train)


def loss(b, x):
    r, shape = b.random, list(b[x].shape)
    reduction = r.choice(("none", "mean", "sum"))
    how = r.choice(("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "cross_entropy",
                    "binary_cross_entropy_with_logits"))
    more = {"smooth_l1_loss": {"beta": r.choice((0.5, 1.0))}, "huber_loss": {"delta": r.choice((0.7, 1.5))}}.get(how, {})
    if how == "cross_entropy":
        target = b.leaf([shape[0], *shape[2:]], f"index:{shape[1]}")
        weight = b.leaf([shape[1]], "positive", grad=False) if r.random() < 0.4 else None
        return b.add("nn.functional.cross_entropy", x, target, weight, reduction=reduction,
                     label_smoothing=r.choice((0.0, 0.2)))
    target = b.leaf(shape, "positive", grad=False) if "logits" in how else other(b, x, broadcast=False)
    return b.add(f"nn.functional.{how}", x, target, reduction=reduction, **more)


def product(b, x):
    r, t = b.random, b[x]
    if r.random() < 0.3:  # with itself
        return b.add("matmul", x, b.add("transpose", x, -1, -2))
    if r.random() < 0.3:
        return b.add("nn.functional.linear", x, b.leaf([3, t.shape[-1]]), b.leaf([3]) if r.random() < 0.5 else None)
    right = b.leaf([*(t.shape[:-2] if r.random() < 0.5 else []), t.shape[-1], r.randint(1, 4)])
    return b.add("bmm" if t.dim() == 3 and b[right].dim() == 3 else "matmul", x, right)


def moved(b, x):
    """Gather, scatter and their like."""
    r, (d, n) = b.random, along(b, x)
    how = r.choice(("index_select", "gather", "scatter", "scatter_add", "embedding"))
    if how == "index_select":
        return b.add(how, x, d, b.leaf([r.randint(1, 4)], f"index:{n}"))
    if how == "embedding":
        return b.add("nn.functional.embedding", b.leaf([n, 2]), b.leaf([2, 3], f"index:{n}"))
    if how == "gather":
        shape = list(b[x].shape)
        shape[d] = r.randint(1, 4)
        return b.add(how, x, d, b.leaf(shape, f"index:{n}"))
    index = permutation(b, x, d) if how == "scatter" else b.leaf(b[x].shape, f"index:{n}")
    return b.add(how, x, d, index, other(b, x, broadcast=False))


def choice(b, x):
    """where and masked_fill, by a mask or a comparison."""
    y = other(b, x, broadcast=False)
    mask = b.leaf(b[x].shape, "mask") if b.random.random() < 0.5 else b.add(b.random.choice(("gt", "le")), x, y)
    return b.add("masked_fill", x, mask, -0.5) if b.random.random() < 0.3 else b.add("where", x, mask, y)


def pair(name):
    return lambda b, x: b.add(name, *b.random.sample([x, other(b, x)], 2))


def plain(name, *args, **kwargs):
    return lambda b, x: b.add(name, x, *args, **kwargs)


def reduced(name):
    return lambda b, x: b.add(name, x, some_dims(b, x), keepdim=b.random.random() < 0.5)


def along_dim(name, *args):
    return lambda b, x: b.add(name, x, *args, dim(b, x))


def sliced(b, x):
    d, n = along(b, x)
    start = b.random.randrange(n)
    return b.add("narrow", x, d, start, b.random.randint(1, n - start))


def padded(b, x):
    mode = b.random.choice(("constant", "reflect", "replicate", "circular")) if b[x].dim() > 2 else "constant"
    name = "nn.functional.pad" + ("" if mode == "constant" else "." + mode)
    return b.add(name, x, [b.random.randint(0, 1) for _ in range(2 * max(1, b[x].dim() - 2))], mode=mode)


# One line a kind of step; its place in the list is how often it comes.
STEPS = [plain(name) for name in ("neg", "abs", "exp", "sin", "cos", "tanh", "sigmoid", "erf", "expm1", "sign")]
STEPS += [plain(f"nn.functional.{name}") for name in ACTIVATIONS + ("softsign", "tanhshrink")]
STEPS += [plain("nn.functional.gelu", approximate="tanh"), plain("clamp", -0.8, 0.9), plain("detach"), plain("round")]
STEPS += [lambda b, x, name=name: b.add(name, positive(b, x)) for name in ("log", "log1p", "sqrt", "rsqrt", "reciprocal")]
STEPS += [lambda b, x: b.add("pow", positive(b, x), b.random.choice((0.5, 1.5, -1.0, 3))),
          lambda b, x: b.add("pow", positive(b, x), other(b, x)),
          lambda b, x: b.add("div", x, positive(b, other(b, x))),
          lambda b, x: b.add("mul", x, b.random.choice((-1.5, 0.5, 2))),
          lambda b, x: b.add("add", x, b.random.choice((-1.5, 0.5, 2))),
          lambda b, x: b.add("nn.functional.prelu", x, b.leaf([1])),
          lambda b, x: b.add("lerp", x, other(b, x, broadcast=False), 0.3)]
STEPS += 2 * [pair(name) for name in ("add", "sub", "mul", "maximum", "minimum")]
STEPS += [reduced(name) for name in ("sum", "mean", "amax", "amin", "logsumexp", "var", "std", "linalg.vector_norm")]
STEPS += [lambda b, x, name=name: b.add(name, x, dim(b, x), b.random.random() < 0.5)
          for name in ("prod", "max.dim", "min.dim", "median")]
STEPS += [along_dim(name) for name in ("cumsum", "cumsum", "cumprod", "softmax", "softmax", "log_softmax", "sort", "flip")]
STEPS += [lambda b, x: b.add("topk", x, 1, dim(b, x)), lambda b, x: b.add("quantile", x, 0.3, dim(b, x)),
          lambda b, x: b.add("roll", x, 1, dim(b, x))]
STEPS += 2 * [lambda b, x: b.add("transpose", x, dim(b, x), dim(b, x)), lambda b, x: b.add("unsqueeze", x, dim(b, x)), sliced,
              lambda b, x: b.add("permute", x, b.random.sample(range(b[x].dim()), b[x].dim())),
              lambda b, x: b.add("select", x, *(lambda d, n: (d, b.random.randrange(n)))(*along(b, x))),
              lambda b, x: b.add("expand", x, [b.random.randint(2, 3), *b[x].shape]),
              lambda b, x: b.add("reshape", x, [-1, b[x].shape[0]])]
STEPS += [lambda b, x: b.add("flatten", x), lambda b, x: b.add("repeat", x, [2] + [1] * (b[x].dim() - 1)), padded,
          lambda b, x: b.add("cat", [x, other(b, x, broadcast=False), x], dim(b, x)),
          lambda b, x: b.add("stack", [x, other(b, x, broadcast=False)], 0), plain("clone")]
STEPS += 2 * [product, moved, choice, loss, norm] + 3 * [convolution, pool] + 5 * [write] + [interpolate]


def grow(b, x):
    """Adds a step, and the nodes that it needs."""
    return b.random.choice(STEPS)(b, x)
