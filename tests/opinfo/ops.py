"""PyTorch's ops in voxgrad's words: one line each where it can be.

Every function below has the signature of the PyTorch op that it stands for; what it does not take (`out=`,
`rounding_mode=`, a dtype, ...) makes a sample "not expressible".
"""

import torch

from voxgrad import DTYPES, Inexpressible, Tensor, vox

INF = float("inf")


class Entry:
    """One op to test. `of` names its samples in PyTorch's OpInfo database ("name" or "name:variant").

    elementwise   each element is one rounding of a formula, so that tolerances are relative to it alone
    composed      made of several of voxgrad's ops, each of which rounds
    own_dtype     the reference is PyTorch in the sample's own dtype: casts, comparisons, factories
    gradients     whether gradients are tested
    adapt         turns one of PyTorch's samples into those of this op: f(sample) -> sample or None
    reference     the op in PyTorch; the entry's own if not given
    """

    def __init__(self, name, call, of=None, elementwise=False, composed=False, own_dtype=False, gradients=True,
                 adapt=None, reference=None):
        self.name, self.call, self.of = name, call, of or name
        self.elementwise, self.composed = elementwise, composed
        self.own_dtype, self.gradients = own_dtype, gradients
        self.adapt, self.reference = adapt, reference


ENTRIES = []


def add(name, call, **options):
    ENTRIES.append(Entry(name, call, **options))


def require(condition, what):
    if not condition:
        raise Inexpressible(what)


# ---- Elementwise ----------------------------------------------------------------------------------------------

def composed(name, call, **options):
    add(name, call, composed=True, **options)


def is_tensor(x):
    return isinstance(x, Tensor)


def elementwise(name, call, **options):
    add(name, call, elementwise=True, **options)


def commutative(op):
    return lambda a, b: op(a, b) if is_tensor(a) else op(b, a)


def times(x, number):
    return vox.mul(x, number) if is_tensor(x) else x * number


for name in ("neg", "abs", "sign", "floor", "ceil", "exp", "log", "sqrt", "rsqrt", "sin", "cos", "log1p", "expm1", "erf",
             "tanh", "sigmoid", "isnan", "isinf", "isfinite", "logical_not"):
    elementwise(name, lambda input, op=getattr(vox, name): op(input))
elementwise("round", lambda input, decimals=0: vox.round(input) if decimals == 0 else require(False, "decimals"))
for name in ("logical_and", "logical_or", "logical_xor"):
    elementwise(name, lambda input, other, op=getattr(vox, name): op(input, other), own_dtype=True)
elementwise("sgn", lambda input: vox.sign(input))
elementwise("special.expit", lambda input: vox.sigmoid(input), of="sigmoid")
for name in ("maximum", "minimum"):
    elementwise(name, lambda input, other, op=getattr(vox, name): op(input, other))
for name in ("eq", "ne", "lt", "le", "gt", "ge"):  # a number is rounded to the dtype, so the dtype matters
    elementwise(name, lambda input, other, op=getattr(vox, name): op(input, other), own_dtype=True)
elementwise("max.binary", lambda input, other: vox.maximum(input, other), of="max:binary")
elementwise("min.binary", lambda input, other: vox.minimum(input, other), of="min:binary")

elementwise("add", lambda input, other, alpha=1: vox.add(input, other) if alpha == 1 else require(False, "alpha"))
elementwise("sub", lambda input, other, alpha=1: vox.sub(input, other) if alpha == 1 else require(False, "alpha"))
elementwise("rsub", lambda input, other, alpha=1: vox.sub(other, input) if alpha == 1 else require(False, "alpha"))
elementwise("mul", lambda input, other: commutative(vox.mul)(input, other))
elementwise("div", lambda input, other, rounding_mode=None: vox.div(input, other) if rounding_mode is None else
            require(False, "rounding_mode"), of="div:no_rounding_mode")
elementwise("true_divide", lambda input, other: vox.div(input, other))
elementwise("pow", lambda input, exponent: vox.pow(input, exponent))
elementwise("__radd__", lambda input, other: vox.add(input, other))
elementwise("__rmul__", lambda input, other: vox.mul(input, other))
elementwise("__rsub__", lambda input, other: vox.sub(other, input))
elementwise("reciprocal", lambda input: vox.div(1, input))
elementwise("square", lambda input: vox.mul(input, input))
elementwise("positive", lambda input: vox.clone(input))

elementwise("nn.functional.relu", lambda input, inplace=False: vox.relu(input))
add("nn.functional.prelu", lambda input, weight: vox.prelu(input, weight))
elementwise("nn.functional.leaky_relu", lambda input, negative_slope=0.01, inplace=False:
            vox.leaky_relu(input, float(negative_slope)))
elementwise("nn.functional.gelu", lambda input, approximate="none":
            vox.gelu(input) if approximate == "none" else vox.gelu_tanh(input) if approximate == "tanh" else
            require(False, "approximate"))
elementwise("nn.functional.silu", lambda input, inplace=False: vox.silu(input))
elementwise("nn.functional.relu6", lambda input, inplace=False: vox.relu6(input))
elementwise("nn.functional.hardtanh", lambda input, min_val=-1, max_val=1, inplace=False:
            vox.hardtanh(input, min_val, max_val))
elementwise("nn.functional.hardsigmoid", lambda input, inplace=False: vox.hardsigmoid(input))
elementwise("nn.functional.hardswish", lambda input, inplace=False: vox.hardswish(input))
elementwise("nn.functional.elu", lambda input, alpha=1, inplace=False: vox.elu(input, float(alpha)))
composed("nn.functional.softplus", lambda input, beta=1, threshold=20:
         vox.softplus(input, float(beta), float(threshold)))
elementwise("nn.functional.mish", lambda input, inplace=False: vox.mish(input))
composed("nn.functional.softsign", lambda input: vox.div(input, vox.add(vox.abs(input), 1)))
composed("nn.functional.tanhshrink", lambda input: vox.sub(input, vox.tanh(input)))


# OpInfo bounds by tensors; by numbers, on its samples of abs.
elementwise("clamp.tensor", lambda input, min=None, max=None: vox.clamp(input, min, max), of="clamp")
elementwise("clamp", lambda input, min, max: vox.clamp(input, min, max), of="abs",
            adapt=lambda s: (s.input, (-1, 2), {}), reference=torch.clamp)
elementwise("clamp_min", lambda input, min: vox.clamp(input, min, None), of="abs",
            adapt=lambda s: (s.input, (1,), {}), reference=torch.clamp_min)
elementwise("clamp_max", lambda input, max: vox.clamp(input, None, max), of="abs",
            adapt=lambda s: (s.input, (1,), {}), reference=torch.clamp_max)


def where(condition, input, other):
    return vox.where(condition, input, other)


# OpInfo's samples of torch.where call it as a method: input.where(condition, other).
elementwise("where", lambda input, condition, other: where(condition, input, other))
elementwise("masked_fill", lambda input, mask, value: vox.masked_fill(input, mask, value)
            if not is_tensor(value) else where(mask, value, input) if value.rank == 0 else require(False, "a tensor"))
composed("addcmul", lambda input, tensor1, tensor2, value=1: vox.add(input, times(vox.mul(tensor1, tensor2), value)))
composed("addcdiv", lambda input, tensor1, tensor2, value=1: vox.add(input, times(vox.div(tensor1, tensor2), value)))
composed("lerp", lambda input, end, weight: vox.add(input, commutative(vox.mul)(weight, vox.sub(end, input))))

# In place, on a copy and off the tape.
elementwise("add_", lambda input, other, alpha=1: vox.add_(vox.clone(input), other, alpha) if is_tensor(other) else
            require(False, "a number"), of="add", gradients=False,
            reference=lambda input, *args, **kwargs: input.clone().add_(*args, **kwargs))
elementwise("mul_", lambda input, other: vox.mul_(vox.clone(input), other), of="mul", gradients=False,
            reference=lambda input, *args: input.clone().mul_(*args))
for name in ("sub_", "div_"):
    elementwise(name, lambda input, other, alpha=1, rounding_mode=None, op=getattr(vox, name):
                op(vox.clone(input), other) if alpha == 1 and rounding_mode is None else
                require(False, "alpha or rounding_mode"), of=name[:3] if name == "sub_" else "div:no_rounding_mode",
                gradients=False, reference=lambda input, *args, name=name, **kwargs:
                getattr(input.clone(), name)(*args, **kwargs))
elementwise("copy_", lambda input, other: vox.copy_(vox.clone(input), other), of="mul", gradients=False,
            reference=lambda input, other: input.clone().copy_(other))
elementwise("fill", lambda input, value: vox.fill_(vox.clone(input), value), gradients=False)
elementwise("zero_", lambda input: vox.zero_(vox.clone(input)), gradients=False)

# ---- Reductions -----------------------------------------------------------------------------------------------


def dims(dim):
    return () if dim is None else tuple(dim) if isinstance(dim, (tuple, list)) else (dim,)


for name, op in (("sum", "sum"), ("mean", "mean"), ("amax", "max"), ("amin", "min"), ("argmax", "argmax"),
                 ("argmin", "argmin")):
    add(name, lambda input, dim=None, keepdim=False, op=getattr(vox, op): op(input, dims(dim), keepdim))
for name in ("prod", "any", "all"):
    add(name, lambda input, dim=None, keepdim=False, op=getattr(vox, name): op(input, dims(dim), keepdim))
for name in ("max", "min"):
    add(name, lambda input, op=getattr(vox, name): op(input, (), False), of=name + ":reduction_no_dim")
    add(name + ".dim", lambda input, dim, keepdim=False, op=getattr(vox, name): op(input, dim, keepdim),
        of=name + ":reduction_with_dim")


def with_statistics(op):
    """torch.var and its like: f(x, unbiased), f(x, dim, unbiased, keepdim), f(x, dim, *, correction, keepdim)."""
    def call(input, dim=None, unbiased=None, keepdim=False, correction=None):
        require(0 not in input.shape, "no elements, for which PyTorch 1.13 has no gradient")
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        if correction is None:
            correction = 1 if unbiased is None else int(unbiased)
        return op(input, dims(dim), float(correction), keepdim)
    return call


for name in ("var", "std", "var_mean"):
    add(name, with_statistics(getattr(vox, name)))
add("std_mean", with_statistics(lambda input, *options: [vox.std(input, *options), vox.var_mean(input, *options)[1]]))


def norm(input, p="fro", dim=None, keepdim=False, dtype=None):
    require(dtype is None, "dtype")
    require(p in ("fro", 1, 2, INF), f"p = {p}")
    return vox.norm(input, 2.0 if p == "fro" else float(p), dims(dim), keepdim)


add("norm", norm)
add("linalg.vector_norm", lambda input, ord=2, dim=None, keepdim=False, dtype=None: norm(input, ord, dim, keepdim, dtype))
add("logsumexp", lambda input, dim, keepdim=False: vox.logsumexp(input, dims(dim), keepdim))


def sort(input, dim=-1, descending=False, stable=None):
    return vox.sort(input, dim, descending)


add("sort", sort)
add("msort", lambda input: vox.sort(input, 0, False)[0])
add("argsort", lambda input, dim=-1, descending=False, stable=None: vox.argsort(input, dim, descending))
add("topk", lambda input, k, dim=-1, largest=True, sorted=True: vox.topk(input, k, dim, largest))
add("median", lambda input, dim=None, keepdim=False:
    vox.median(input) if dim is None else vox.median(input, dim, keepdim))
composed("quantile", lambda input, q, dim=None, keepdim=False, interpolation="linear":
         vox.quantile(input, float(q), dim, keepdim) if interpolation == "linear" and not is_tensor(q) else
         require(False, "several q or another interpolation"))


def one_list(sizes):
    """The sizes of f(x, 2, 3), f(x, (2, 3)) or f(x, 2)."""
    return tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else tuple(sizes)


add("sum_to_size", lambda input, *sizes: vox.sum_to(input, one_list(sizes)))
add("trace", lambda input: vox.sum(vox.mul(input, vox.eye(input.shape[0], input.dtype, on_cuda())), (), False)
    if input.rank == 2 and input.shape[0] == input.shape[1] else require(False, "no square matrix"))


def cast(input, dtype):
    return input if dtype is None else vox.to(input, dtype)


for name in ("cumsum", "cumprod"):
    add(name, lambda input, dim, dtype=None, op=getattr(vox, name): op(input, dim) if dtype is None else
        require(False, "dtype"))

add("softmax", lambda input, dim, dtype=None: vox.softmax(cast(input, dtype), dim))
add("softmax.with_dtype", ENTRIES[-1].call, of="softmax:with_dtype")
add("log_softmax", lambda input, dim, dtype=None: vox.log_softmax(cast(input, dtype), dim))
add("log_softmax.dtype", ENTRIES[-1].call, of="log_softmax:dtype")
add("nn.functional.softmin", lambda input, dim, dtype=None: vox.softmax(cast(vox.neg(input), dtype), dim))
add("nn.functional.softmin.with_dtype", ENTRIES[-1].call, of="nn.functional.softmin:with_dtype")

# ---- Products -------------------------------------------------------------------------------------------------

add("matmul", lambda input, other: vox.matmul(input, other))
add("__rmatmul__", lambda input, other: vox.matmul(other, input))


def product(name, rank0, rank1):
    """torch.mm and its like are matmul for fixed ranks."""
    def call(input, other):
        require(input.rank == rank0 and other.rank == rank1, "other ranks, which matmul takes")
        return vox.matmul(input, other)
    add(name, call)


product("mm", 2, 2)
add("bmm", lambda input, mat2: vox.bmm(input, mat2))
product("mv", 2, 1)
product("dot", 1, 1)
product("vdot", 1, 1)


def combined(input, product, alpha, beta):
    return vox.add(times(input, beta), times(product, alpha))


for name in ("addmm", "addmm:decomposed", "addmv", "baddbmm"):
    composed(name.replace(":", "."), lambda input, a, b, alpha=1, beta=1:
             combined(input, vox.matmul(a, b), alpha, beta), of=name)
composed("addbmm", lambda input, a, b, alpha=1, beta=1:
    combined(input, vox.sum(vox.matmul(a, b), (0,), False), alpha, beta))
composed("addr", lambda input, a, b, alpha=1, beta=1:
    combined(input, vox.matmul(vox.unsqueeze(a, 1), vox.unsqueeze(b, 0)), alpha, beta))
add("outer", lambda input, other: vox.matmul(vox.unsqueeze(input, 1), vox.unsqueeze(other, 0)))
add("inner", lambda input, other: vox.matmul(input, vox.transpose(other, -1, -2) if other.rank > 1 else other)
    if min(input.rank, other.rank) and max(input.rank, other.rank) < 3 else require(False, "other ranks"))
composed("nn.functional.linear", lambda input, weight, bias=None: vox.linear(input, weight, bias))

# ---- Convolutions ---------------------------------------------------------------------------------------------


def numbers(value, axes):
    """An option of an op with so many axes, one number for each."""
    require(not isinstance(value, (str, Tensor)), f"the option {value!r}")
    if isinstance(value, (tuple, list)):
        require(len(value) in (1, axes), f"{len(value)} numbers for {axes} axes")
        return tuple(value) * (axes // len(value))
    return (value,) * axes


def per_axis(axes, *options):
    """As the shim takes them: integers in one dimension, else lists."""
    lists = [numbers(0 if o == "valid" else o, axes) for o in options]
    return [one[0] for one in lists] if axes == 1 else lists


def conv(axes):
    op = getattr(vox, f"conv{axes}d")

    def call(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
        return op(input, weight, bias, *per_axis(axes, stride, padding, dilation), groups)
    return call


def conv_transpose(axes):
    op = getattr(vox, f"conv_transpose{axes}d")

    def call(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
        return op(input, weight, bias, *per_axis(axes, stride, padding, output_padding), groups,
                  *per_axis(axes, dilation))
    return call


def options_of(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    return {"stride": stride, "padding": padding, "groups": groups, "dilation": dilation}


def as_conv3d(s):
    """conv3d's samples from those of its adjoint (PyTorch 1.13 has none): its output becomes the input."""
    big = torch.nn.functional.conv_transpose3d(s.input, *s.args, **s.kwargs).detach()
    big.requires_grad_(big.is_floating_point())
    return big, (s.args[0],), options_of(s.input, *s.args, **s.kwargs)


def as_weight_grad(s):
    if s.input.dim() != 5:
        return None
    big, (weight,), options = as_conv3d(s)
    small = torch.nn.functional.conv3d(big.detach(), weight.detach(), **options)
    return big, (weight.shape, small.requires_grad_(big.requires_grad)), options


for axes in (1, 2):
    add(f"nn.functional.conv{axes}d", conv(axes))
add("nn.functional.conv3d", conv(3), of="nn.functional.conv_transpose3d", adapt=as_conv3d,
    reference=torch.nn.functional.conv3d)
for axes in (1, 2, 3):
    add(f"nn.functional.conv_transpose{axes}d", conv_transpose(axes))
add("nn.grad.conv3d_weight", lambda input, weight_size, grad_output, stride=1, padding=0, dilation=1, groups=1:
    vox.conv3d_weight_grad(input, grad_output, tuple(weight_size[2:]), *per_axis(3, stride, padding, dilation),
                           groups),
    of="nn.functional.conv_transpose3d", adapt=as_weight_grad, reference=torch.nn.grad.conv3d_weight)
for axes in (1, 2, 3):
    add(f"nn.Conv{axes}d", conv(axes), of=f"module:nn.Conv{axes}d",
        reference=getattr(torch.nn.functional, f"conv{axes}d"))
    add(f"nn.ConvTranspose{axes}d", conv_transpose(axes), of=f"module:nn.ConvTranspose{axes}d",
        reference=getattr(torch.nn.functional, f"conv_transpose{axes}d"))

# ---- Pooling, interpolation: fewer axes are three with axes of one cell --------------------------------------------


def in_3d(axes, op):
    """Calls op on the input with 3 - axes more axes of size 1, which are removed from the result."""
    def call(input, *args):
        x = input
        for _ in range(3 - axes):
            x = vox.unsqueeze(x, -axes - 1)
        y = op(x, *args)
        for _ in range(3 - axes):
            y = vox.squeeze(y, -axes - 1)
        return y
    return call


def window(axes, value, other=1):
    return None if value is None or value == () else (other,) * (3 - axes) + numbers(value, axes)


def max_pool(axes):
    with_indices = getattr(vox, f"max_pool{axes}d_with_indices")

    def call(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
        require(input.rank in (axes + 1, axes + 2), "another rank")
        if return_indices:
            stride = kernel_size if stride is None or stride == () else stride
            return with_indices(input, *per_axis(axes, kernel_size, stride, padding, dilation), ceil_mode)
        return in_3d(axes, vox.max_pool3d)(input, window(axes, kernel_size), window(axes, stride),
                                           window(axes, padding, 0), window(axes, dilation), ceil_mode)
    return call


def avg_pool(axes):
    def call(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True,
             divisor_override=None):
        require(input.rank in (axes + 1, axes + 2), "another rank")
        return in_3d(axes, vox.avg_pool3d)(input, window(axes, kernel_size), window(axes, stride),
                                           window(axes, padding, 0), ceil_mode, count_include_pad, divisor_override)
    return call


def adaptive_pool(axes, op):
    def call(input, output_size, return_indices=False):
        require(not return_indices, "return_indices")
        require(input.rank in (axes + 1, axes + 2), "another rank")
        sizes = zip(numbers(output_size, axes), input.shape[-axes:])
        return in_3d(axes, op)(input, window(axes, tuple(size if out is None else out for out, size in sizes)))
    return call


for axes in (1, 2, 3):
    add(f"nn.functional.max_pool{axes}d", max_pool(axes))
    add(f"nn.functional.avg_pool{axes}d", avg_pool(axes))
    add(f"nn.functional.adaptive_max_pool{axes}d", adaptive_pool(axes, vox.adaptive_max_pool3d))
    add(f"nn.functional.adaptive_avg_pool{axes}d", adaptive_pool(axes, vox.adaptive_avg_pool3d))



def max_unpool(axes):
    def call(input, indices, kernel_size, stride=None, padding=0, output_size=None):
        op = getattr(vox, f"max_unpool{axes}d")
        sizes = per_axis(axes, kernel_size, kernel_size if stride is None else stride, padding)
        out = [] if output_size is None else per_axis(axes, output_size[-axes:])
        return op(input, indices, *sizes, *out)
    return call


for axes in (1, 2, 3):
    add(f"nn.functional.max_unpool{axes}d", max_unpool(axes))

AXES = {"linear": 1, "bilinear": 2, "trilinear": 3}


def interpolate(input, size=None, scale_factor=None, mode="nearest", align_corners=None,
                recompute_scale_factor=None, antialias=False):
    require(not antialias and not recompute_scale_factor, "antialias or recompute_scale_factor")
    require(mode == "nearest" or mode in AXES, f"mode {mode}")
    axes = input.rank - 2
    require(axes in (1, 2, 3) and AXES.get(mode, axes) == axes, "another rank")
    scale = None if scale_factor is None else (1.0,) * (3 - axes) + tuple(map(float, numbers(scale_factor, axes)))
    return in_3d(axes, vox.interpolate)(input, window(axes, size), scale,
                                        "nearest" if mode == "nearest" else "trilinear", bool(align_corners))


for mode in ("nearest", "linear", "bilinear", "trilinear"):
    add(f"nn.functional.interpolate.{mode}", interpolate, of=f"nn.functional.interpolate:{mode}")
add("nn.functional.upsample_nearest", lambda input, size=None, scale_factor=None:
    interpolate(input, size, scale_factor))
add("nn.functional.upsample_bilinear", lambda input, size=None, scale_factor=None:
    interpolate(input, size, scale_factor, "bilinear", True))


def grid_sample(input, grid, mode="bilinear", padding_mode="zeros", align_corners=None):
    require(mode != "bicubic", "mode bicubic")
    return vox.grid_sample(input, grid, "nearest" if mode == "nearest" else "trilinear", padding_mode,
                           bool(align_corners))


add("nn.functional.grid_sample", grid_sample)
add("nn.functional.affine_grid", lambda theta, size, align_corners=None:
    vox.affine_grid(theta, tuple(size), bool(align_corners)))

# ---- Losses and norms -----------------------------------------------------------------------------------------

add("nn.functional.mse_loss", lambda input, target, reduction="mean": vox.mse_loss(input, target, reduction))
add("nn.functional.l1_loss", lambda input, target, reduction="mean": vox.l1_loss(input, target, reduction))


add("nn.functional.cross_entropy", lambda input, target, weight=None, ignore_index=-100, reduction="mean",
    label_smoothing=0.0: vox.cross_entropy(input, target, weight, ignore_index, reduction, float(label_smoothing)))
add("nn.functional.smooth_l1_loss", lambda input, target, reduction="mean", beta=1.0:
    vox.smooth_l1_loss(input, target, reduction, float(beta)))
add("nn.functional.huber_loss", lambda input, target, reduction="mean", delta=1.0:
    vox.huber_loss(input, target, reduction, float(delta)))
composed("nn.functional.binary_cross_entropy", lambda input, target, weight=None, reduction="mean":
         vox.binary_cross_entropy(input, target, weight, None, reduction))
composed("nn.functional.binary_cross_entropy_with_logits", lambda input, target, weight=None, reduction="mean",
         pos_weight=None: vox.binary_cross_entropy_with_logits(input, target, weight, pos_weight, reduction))


def copies(*tensors):
    """Of running statistics, which a norm in training updates."""
    return [t if t is None else vox.clone(t) for t in tensors]


def batch_norm(input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    require(2 <= input.rank <= 5, "another rank")
    return vox.batch_norm(input, *copies(running_mean, running_var), weight, bias, training, float(momentum), float(eps))


def instance_norm(input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True,
                  momentum=0.1, eps=1e-5):
    return vox.instance_norm(input, *copies(running_mean, running_var), weight, bias, use_input_stats, float(momentum),
                             float(eps))


def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    return vox.layer_norm(input, tuple(normalized_shape), weight, bias, float(eps))


add("nn.functional.batch_norm", batch_norm)
add("nn.functional.instance_norm", instance_norm)
add("nn.functional.group_norm", lambda input, num_groups, weight=None, bias=None, eps=1e-5:
    vox.group_norm(input, num_groups, weight, bias, float(eps)))
add("nn.functional.layer_norm", layer_norm)
add("native_layer_norm", layer_norm, reference=lambda *args: torch.native_layer_norm(*args)[0])

# ---- Shaping: copies and views --------------------------------------------------------------------------------


def shaping(name, call, **options):
    add(name, call, elementwise=True, **options)


def one_sequence(tensors):
    """The tensors of f(a, b) or f([a, b])."""
    return list(tensors[0]) if isinstance(tensors[0], (tuple, list)) else list(tensors)


shaping("cat", lambda tensors, dim=0: vox.cat(list(tensors), dim))
shaping("stack", lambda tensors, dim=0: vox.stack(list(tensors), dim))


def pad(input, pad, mode="constant", value=None):
    if mode != "constant":
        return vox.pad(input, tuple(pad), mode)
    return vox.pad(input, tuple(pad), 0 if value is None else value)


for mode in ("reflect", "replicate", "circular"):
    shaping(f"nn.functional.pad.{mode}", pad, of=f"nn.functional.pad:{mode}")
shaping("nn.functional.pad", pad, of="nn.functional.pad:constant")
shaping("constant_pad_nd", lambda input, padding, value=0: pad(input, padding, "constant", value))
shaping("index_select", lambda input, dim, index: vox.index_select(input, dim, index))
shaping("gather", lambda input, dim, index, sparse_grad=False: vox.gather(input, dim, index))
shaping("scatter", lambda input, dim, index, src=None, value=None, reduce=None:
        vox.scatter(input, dim, index, src if value is None else value) if reduce is None else
        require(False, "reduce"))
add("scatter_add", lambda input, dim, index, src: vox.scatter_add(input, dim, index, src))
add("nn.functional.embedding", lambda weight, indices, padding_idx=None, max_norm=None, scale_grad_by_freq=False,
    sparse=False: vox.embedding(indices, weight, padding_idx) if max_norm is None and not scale_grad_by_freq and
    not sparse else require(False, "max_norm, scale_grad_by_freq or sparse"))
shaping("nonzero", lambda input, as_tuple=False: vox.nonzero(input) if not as_tuple else require(False, "a tuple"))
shaping("repeat", lambda input, *sizes: vox.repeat(input, one_list(sizes)))
shaping("tile", lambda input, *sizes: vox.tile(input, one_list(sizes)))
for variant in ("variadic_tensors", "list_of_tensors"):
    shaping(f"meshgrid.{variant}", lambda *tensors, indexing="ij": vox.meshgrid(one_sequence(tensors))
            if indexing == "ij" else require(False, f"indexing {indexing}"), of=f"meshgrid:{variant}")
shaping("nn.functional.pixel_shuffle", lambda input, upscale_factor:
        vox.pixel_shuffle(input, upscale_factor, 2))
shaping("nn.functional.pixel_unshuffle", lambda input, downscale_factor:
        vox.pixel_unshuffle(input, downscale_factor, 2))
add("einsum", lambda tensors, equation: vox.einsum(equation, list(tensors)) if "." not in equation else
    require(False, "an ellipsis"))
shaping("flip", lambda input, dims: vox.flip(input, one_list((dims,))))
shaping("fliplr", lambda input: vox.flip(input, (1,)))
shaping("flipud", lambda input: vox.flip(input, (0,)) if input.rank else require(False, "a tensor of rank 0"))
shaping("roll", lambda input, shifts, dims=(): vox.roll(input, one_list((shifts,)), one_list((dims,))))

shaping("slice", lambda input, dim=0, start=None, end=None, step=1:
        vox.slice(input, dim, 0 if start is None else start, 2**63 - 1 if end is None else end, step))
shaping("select", lambda input, dim, index: vox.select(input, dim, index))
shaping("permute", lambda input, *dims: vox.permute(input, one_list(dims)))
shaping("transpose", lambda input, dim0, dim1: vox.transpose(input, dim0, dim1))
shaping("t", lambda input: vox.transpose(input, 0, 1) if input.rank == 2 else
        input if input.rank < 2 else require(False, "a tensor of more than 2 dimensions"))
for name in ("mT", "mH"):
    shaping(name, lambda input: vox.transpose(input, -2, -1))
for name in ("T", "H"):
    shaping(name, lambda input: vox.permute(input, tuple(reversed(range(input.rank)))))
for name in ("expand", "broadcast_to"):
    shaping(name, lambda input, *sizes: vox.expand(input, one_list(sizes)))
shaping("expand_as", lambda input, other: vox.expand(input, other.shape))
for name in ("reshape", "view"):
    shaping(name, lambda input, *sizes: vox.reshape(input, one_list(sizes)))
for name in ("reshape_as", "view_as"):
    shaping(name, lambda input, other: vox.reshape(input, other.shape))
shaping("flatten", lambda input, start_dim=0, end_dim=-1: vox.flatten(input, start_dim, end_dim))
shaping("ravel", lambda input: vox.flatten(input, 0, -1))
shaping("unflatten", lambda input, dim, sizes: require(0 not in input.shape, "a size of -1 of nothing") or
        vox.reshape(input, input.shape[:dim % input.rank] + tuple(sizes) + input.shape[dim % input.rank + 1:]))
shaping("squeeze", lambda input, *dim: vox.squeeze(input, *dim))
shaping("unsqueeze", lambda input, dim: vox.unsqueeze(input, dim))
shaping("narrow", lambda input, dim, start, length: vox.slice(input, dim, start, start + length, 1)
        if isinstance(start, int) and 0 <= start <= start + length <= input.shape[dim] else
        require(False, "a start that is a tensor, or a range that slice() would clamp"))


def pieces(input, sizes, dim):
    require(sum(sizes) == input.shape[dim], "sizes that do not add up, which slice() would clamp")
    ends = [sum(sizes[:i + 1]) for i in range(len(sizes))]
    return [vox.slice(input, dim, end - size, end, 1) for size, end in zip(sizes, ends)]


def equal_pieces(input, size, dim):
    whole = input.shape[dim]
    return pieces(input, [min(size, whole - i) for i in range(0, whole, size)], dim)


shaping("split", lambda input, size, dim=0: equal_pieces(input, size, dim))
shaping("split.list_args", lambda input, sizes, dim=0: pieces(input, sizes, dim), of="split:list_args")
shaping("split_with_sizes", lambda input, sizes, dim=0: pieces(input, sizes, dim))
shaping("chunk", lambda input, chunks, dim=0: equal_pieces(input, -(-input.shape[dim] // chunks), dim))
shaping("unbind", lambda input, dim=0: [vox.select(input, dim, i) for i in range(input.shape[dim])])
shaping("clone", lambda input, memory_format=None: vox.clone(input))
shaping("contiguous", lambda input, memory_format=None: vox.contiguous(input))

# ---- Casts and factories ------------------------------------------------------------------------------------

CASTS = {"float": torch.float32, "double": torch.float64, "bfloat16": torch.bfloat16, "half": torch.float16,
         "long": torch.int64, "byte": torch.uint8, "bool": torch.bool}
for name, dtype in CASTS.items():
    shaping(name, lambda input, memory_format=None, dtype=dtype: vox.to(input, dtype), own_dtype=True)

_cuda = False


def use_cuda(on):
    global _cuda
    _cuda = on


def on_cuda():
    return "cuda" if _cuda else "cpu"


def full(sizes, value, like=None, dtype=None, device=None, layout=None, requires_grad=False, pin_memory=False):
    return vox.full(one_list(sizes), value, dtype or (like.dtype if like else torch.float32), on_cuda())


def factory(name, call, **options):
    add(name, call, own_dtype=True, gradients=False, **options)


factory("ones", lambda *sizes, **o: full(sizes, 1, **o))
factory("zeros", lambda *sizes, **o: full(sizes, 0, **o))
factory("new_ones", lambda input, *sizes, **o: full(sizes, 1, input, **o))
factory("new_zeros", lambda input, *sizes, **o: full(sizes, 0, input, **o))
factory("new_full", lambda input, sizes, value, **o: full(tuple(sizes), value, input, **o))
factory("ones_like", lambda input, dtype=None, **o: vox.ones_like(cast(input, dtype)))
factory("zeros_like", lambda input, dtype=None, **o: vox.zeros_like(cast(input, dtype)))
factory("full_like", lambda input, value, dtype=None, **o: vox.full_like(cast(input, dtype), value))
factory("eye", lambda n, m=None, dtype=torch.float32, **o: vox.eye(n, dtype, on_cuda()) if m in (None, n) else
        require(False, "a matrix that is not square"))


def arange(*range_, dtype=torch.float32, device=None, requires_grad=False):
    start, end, step = (range_ + (1,) if len(range_) == 2 else range_) if len(range_) > 1 else (0, *range_, 1)
    return vox.arange(start, end, step, dtype, on_cuda())


factory("arange", arange)
factory("linspace", lambda start, end, steps, dtype=torch.float32, device=None, **o:
        vox.linspace(float(start), float(end), steps, dtype, on_cuda()))
