"""Where voxgrad differs from PyTorch by decision. Each rule says which disagreements it covers, and why.
docs/differences.md contains these texts. A disagreement that no rule covers is a failure.
"""

import torch

RULES = []


class Rule:
    def __init__(self, title, reason, covers):
        self.title, self.reason, self.covers = title, reason, covers


def rule(title, reason):
    """Adds covers(entry, sample, disagreement), a predicate, as a rule."""
    def add(covers):
        RULES.append(Rule(title, reason, covers))
        return covers
    return add


def covering(entry, sample, disagreement):
    """The first rule that covers the disagreement, or None."""
    for one in RULES:
        if one.covers(entry, sample, disagreement):
            return one
    return None


def refused(d, *texts):
    return d.kind == "refused" and any(t in d.message for t in texts)


def dtypes(sample):
    return {t.dtype for t in sample.tensors()}


def floating(sample):
    return any(t.is_floating_point() for t in sample.tensors())


# ---- Dtypes ---------------------------------------------------------------------------------------------------

@rule("Integers do not become floating numbers",
      "Ops whose result is a fraction (`exp`, `div`, `mean`, `softmax`, convolutions and others) take "
      "floating dtypes only. PyTorch casts integers to its default dtype. Here the caller writes "
      "`x.to(vox::f32)`.")
def _(entry, sample, d):
    return refused(d, "needs a floating dtype") and not floating(sample)


@rule("No arithmetic on bool",
      "`add`, `mul`, `maximum`, comparisons by order and similar ops refuse bool, for which PyTorch has "
      "special rules (`true + true` is true, `-b` and `a - b` are errors). Reductions and `eq` accept "
      "bool.")
def _(entry, sample, d):
    return refused(d, "no arithmetic on bool") and torch.bool in dtypes(sample)


@rule("Dtypes never mix",
      "Two tensors of different dtypes are an error that names both. PyTorch promotes.")
def _(entry, sample, d):
    return d.kind == "refused" and d.message.startswith("DTypeError") and len(dtypes(sample)) > 1


@rule("A number must fit the dtype",
      "A C++ number beside an integer or bool tensor takes the tensor's dtype. If the dtype cannot hold "
      "it (300 in u8, 0.5 in i64), that is an error. PyTorch promotes the tensor, wraps around, or "
      "truncates.")
def _(entry, sample, d):
    return refused(d, "cannot be held by dtype", "cannot hold") and not floating(sample)


@rule("Casts saturate",
      "A floating number cast to an integer dtype is limited to that dtype's range, and NaN becomes 0. In "
      "PyTorch, as in C++, the result is undefined and depends on the processor.")
def _(entry, sample, d):
    if entry.name not in ("long", "byte") or d.kind != "forward" or not floating(sample):
        return False
    t = sample.input
    low, high = (0, 255) if entry.name == "byte" else (-2.0**63, 2.0**63)
    return bool((t.isnan() | (t <= low) | (t >= high)).any())


@rule("`arange` of whole numbers is f32",
      "The dtype is f32 unless the caller gives one. PyTorch infers i64 from whole arguments.")
def _(entry, sample, d):
    return entry.name == "arange" and d.kind == "dtype" and "dtype" not in sample.kwargs


@rule("`linspace` rounds once",
      "Its elements are computed in double. PyTorch computes the distance of those of bf16 and f16 in that dtype.")
def _(entry, sample, d):
    return entry.name == "linspace" and d.kind == "forward" and (
        sample.kwargs.get("dtype") in (torch.bfloat16, torch.float16))


@rule("`sum_to` returns its input if nothing has to be summed",
      "It is the adjoint of `expand`, so a u8 tensor of the requested shape stays u8. PyTorch's "
      "`sum_to_size` casts it to i64.")
def _(entry, sample, d):
    return entry.name == "sum_to_size" and d.kind == "dtype" and not floating(sample)


@rule("`any` and `all` are bool",
      "PyTorch's are u8 for a u8 tensor.")
def _(entry, sample, d):
    return entry.name in ("any", "all") and d.kind == "dtype" and sample.input.dtype == torch.uint8


# ---- Shapes ---------------------------------------------------------------------------------------------------

@rule("`pad` does not crop",
      "A negative padding is an error. PyTorch crops.")
def _(entry, sample, d):
    return entry.name.startswith(("nn.functional.pad", "constant_pad_nd")) and refused(d, "padding must be >= 0")


@rule("Padding by elements takes tensors without channels",
      "Their result is empty. PyTorch refuses some of them.")
def _(entry, sample, d):
    return entry.name.startswith("nn.functional.pad.") and d.kind == "accepted" and 0 in sample.input.shape


@rule("`reshape` copies where strides do not allow a view",
      "The test compares it with PyTorch's `view`, which is an error in these cases.")
def _(entry, sample, d):
    return entry.name in ("view", "view_as") and d.kind == "accepted"


@rule("A number may be the left operand",
      "`2 - x` is an overload of the operator. PyTorch's samples expect an error, because they test a "
      "method of the tensor.")
def _(entry, sample, d):
    return d.kind == "accepted" and sample.source == "error" and isinstance(sample.input, (int, float))


@rule("`index_select` and `transpose` need the dimensions that they name",
      "PyTorch accepts a tensor of rank 0, of which `index_select` copies one element, whatever the indices say, "
      "and `mT` nothing.")
def _(entry, sample, d):
    return entry.name in ("index_select", "mT", "mH") and sample.input.dim() == 0 and refused(d, "out of range for rank")


@rule("`roll` takes a tensor without dimensions",
      "The result is a copy. Newer versions of PyTorch refuse it.")
def _(entry, sample, d):
    return entry.name == "roll" and d.kind == "accepted" and sample.input.dim() == 0


@rule("An index is i64",
      "Even an empty one. PyTorch accepts an empty tensor of any dtype.")
def _(entry, sample, d):
    return entry.name == "gather" and refused(d, "index must have dtype i64")


@rule("A number may be an operand of `maximum` and `minimum`",
      "`maximum(x, 0.5)` is an overload. PyTorch takes tensors only.")
def _(entry, sample, d):
    names = ("maximum", "minimum", "max.binary", "min.binary")
    return entry.name in names and d.kind == "accepted" and sample.source == "error" and any(
        isinstance(a, (int, float)) for a in sample.args)


@rule("`cat` takes tensors of one rank",
      "PyTorch skips tensors of shape (0,) beside tensors of any other shape.")
def _(entry, sample, d):
    return entry.name == "cat" and refused(d, "cat: ") and any(t.shape == (0,) for t in sample.tensors())


@rule("`matmul` of an empty matrix keeps its shape",
      "For a matrix without columns and a number to add, `addmv` of PyTorch 1.13 wrongly gives a result "
      "of rank 0.")
def _(entry, sample, d):
    return entry.name == "addmv" and d.message.startswith("shape") and sample.input.dim() == 0


@rule("`pixel_unshuffle` of an empty tensor has the shape of any other",
      "PyTorch 1.13 returns the empty tensor as it is.")
def _(entry, sample, d):
    return entry.name == "nn.functional.pixel_unshuffle" and d.message.startswith("shape") and 0 in sample.input.shape


@rule("Pooling takes tensors without channels",
      "Their result is empty. PyTorch refuses some of them.")
def _(entry, sample, d):
    shape = tuple(sample.input.shape) if isinstance(sample.input, torch.Tensor) else ()
    axes = int(entry.name[-2]) if "_pool" in entry.name else 0
    return axes and d.kind == "accepted" and len(shape) > axes and shape[-axes - 1] == 0


@rule("Adaptive pooling needs cells",
      "An axis of size 0 is an error. PyTorch's `adaptive_avg_pool1d` and `adaptive_avg_pool3d` accept it.")
def _(entry, sample, d):
    return "adaptive_" in entry.name and refused(d, "the sizes of the input must be >= 1")


@rule("Equal elements stay in the order of their index",
      "So do those of `topk` and `median`. PyTorch's return any of them, and its `median()` of all elements shares the "
      "gradient among them.")
def _(entry, sample, d):
    return entry.name in ("topk", "median") and d.kind in ("forward", "gradient", "second gradient") and (
        repeats(sample.input.flatten()))


def repeats(t):
    """Whether an element occurs twice along the last dimension."""
    t = t.detach().double().sort(-1).values
    return bool((t[..., 1:] == t[..., :-1]).any())


@rule("The median of nothing is an error",
      "PyTorch's `median()` is NaN.")
def _(entry, sample, d):
    return entry.name == "median" and refused(d, "there is no element to choose from")


@rule("Of several elements that are scattered to one place, the last gets the gradient",
      "Its value stays. In PyTorch all of them get it.")
def _(entry, sample, d):
    if not (entry.name == "scatter" or "max_unpool" in entry.name) or "gradient" not in d.kind:
        return False
    if entry.name == "scatter":
        return repeats(sample.args[1].movedim(sample.args[0], -1))
    return repeats(sample.args[0].flatten(-int(entry.name[-2])))


@rule("The gradient of `cumprod` divides by no element",
      "PyTorch divides by those of x, which costs digits where they are small.")
def _(entry, sample, d):
    return entry.name == "cumprod" and d.kind == "second gradient" and torch.float64 in dtypes(sample)


@rule("The second gradient of `binary_cross_entropy` is that of its formula",
      "PyTorch adds 1e-12 to the denominator, which costs digits in f64.")
def _(entry, sample, d):
    return (entry.name == "nn.functional.binary_cross_entropy" and d.kind == "second gradient"
            and torch.float64 in dtypes(sample))


# ---- Values ---------------------------------------------------------------------------------------------------

@rule("The bounds of `clamp` must be in order",
      "min > max is an error. PyTorch returns max.")
def _(entry, sample, d):
    return refused(d, "min must not exceed max")


@rule("The sign of NaN is NaN",
      "In PyTorch `sign(NaN)` is 0, and so is the gradient of `abs`, and of `norm` with p = 1, at NaN.")
def _(entry, sample, d):
    kinds = (("sign", "forward"), ("sgn", "forward"), ("abs", "gradient"), ("norm", "gradient"),
             ("linalg.vector_norm", "gradient"))
    return (entry.name, d.kind) in kinds and d.count == sample.input.isnan().sum()


@rule("A NaN passes the gradient of `hardtanh` and `relu6` on, and makes that of `elu` NaN",
      "PyTorch on the CPU does either, depending on where in a vector the element lies.")
def _(entry, sample, d):
    names = ("nn.functional.hardtanh", "nn.functional.relu6", "nn.functional.elu")
    return entry.name in names and d.kind == "gradient" and bool(sample.input.isnan().any())


@rule("The second gradient of `mish` exists everywhere",
      "For x below about -355, PyTorch's is NaN, because its exp overflows. Here it is 0.")
def _(entry, sample, d):
    return entry.name == "nn.functional.mish" and d.kind == "second gradient" and "PyTorch has nan" in d.message


@rule("A variance beyond f32's range is infinite or NaN",
      "`var` and `std` of f32 and 16-bit tensors are computed in f32. PyTorch computes them in f64 on the CPU.")
def _(entry, sample, d):
    beyond = d.message.split("first at")[-1].split(": ")[-1].startswith(("nan", "inf"))
    return entry.name in ("var", "std", "var_mean", "std_mean") and sample.source == "special" and beyond


@rule("`hardsigmoid` and `hardswish` have the slopes of their definition",
      "PyTorch's gradient of `hardsigmoid` multiplies an f64 by an f32 1/6. That of `hardswish` at -3 and 3 depends on "
      "the dtype; here it is 0 and 1.")
def _(entry, sample, d):
    if entry.name == "nn.functional.hardsigmoid":
        return d.kind == "gradient" and sample.input.dtype == torch.float64
    return entry.name == "nn.functional.hardswish" and d.kind == "gradient" and bool((sample.input.abs() == 3).any())


@rule("`elu` of a small number is not 0",
      "PyTorch computes exp(x) - 1, which cancels.")
def _(entry, sample, d):
    return entry.name == "nn.functional.elu" and d.kind == "forward" and bool((sample.input.abs() < 1e-4).any())


@rule("Several NaN share the gradient of max and min",
      "PyTorch's `max()` agrees. The gradient of its `amax` is NaN along a dimension that holds NaN.")
def _(entry, sample, d):
    return entry.name in ("amax", "amin") and d.kind == "gradient" and bool(sample.input.isnan().any()) and (
        "PyTorch has nan" in d.message)


@rule("Norms take tensors without channels",
      "Their result is empty. PyTorch refuses them with an internal error.")
def _(entry, sample, d):
    return entry.name == "nn.functional.batch_norm" and d.kind == "accepted" and sample.input.shape[1] == 0


@rule("The test passes copies of running statistics",
      "So it cannot notice that an expanded tensor cannot be written to. `copy_` refuses it, as PyTorch does.")
def _(entry, sample, d):
    return entry.name.endswith("_norm") and d.kind == "accepted" and "written-to tensor" in d.message


@rule("A norm of equal values rounds their mean",
      "Each row of equal values is normalised to the bias exactly. PyTorch's `layer_norm`, and others in newer versions, "
      "keep a rounding error of the mean, divided by sqrt(eps). In the second gradient, which is composed of ops, voxgrad "
      "keeps one.")
def _(entry, sample, d):
    return entry.name.endswith("_norm") and "vector" not in entry.name and (
        d.kind in ("second gradient", "forward") or "layer_norm" in entry.name) and equal_values(sample)


def equal_values(sample):
    """Whether a row of x, along its last dimension at least, has no other."""
    x = sample.input.detach()
    return x.numel() > 0 and bool((x.amax(-1) == x.amin(-1)).any())


@rule("The gradient of `std` and `norm` is constant at 0",
      "It is 0 there, as in PyTorch, and so is its own gradient, which is NaN in PyTorch.")
def _(entry, sample, d):
    return entry.name in ("std", "std_mean", "norm", "linalg.vector_norm") and d.kind == "second gradient" and (
        "PyTorch has nan" in d.message)


@rule("`prelu` has the slope of its left side at 0",
      "So it does in PyTorch, but in newer versions the gradient of that gradient is the one of the right side.")
def _(entry, sample, d):
    return entry.name == "nn.functional.prelu" and d.kind == "second gradient" and bool((sample.input == 0).any())


@rule("f16 ends at 65504",
      "A second gradient consists of several ops, and each result is rounded. In the second gradient of "
      "`pow`, a term may exceed the range of f16 although the sum of the terms does not.")
def _(entry, sample, d):
    return entry.name == "pow" and d.kind == "second gradient" and torch.float16 in dtypes(sample) and (
        ": nan, PyTorch" in d.message or "inf, PyTorch" in d.message)


@rule("The second gradient of `pow` at base 0 is finite where it exists",
      "In PyTorch that of `pow(0, 0)` is NaN.")
def _(entry, sample, d):
    return entry.name == "pow" and d.kind == "second gradient" and "PyTorch has nan" in d.message and (
        bool((sample.input == 0).any()))


@rule("A tie of `grid_sample` goes to the even cell",
      "So it does in PyTorch's 2-D kernels. In `nearest` mode, PyTorch 1.13 rounds a tie in 3-D on the CPU away from 0.")
def _(entry, sample, d):
    return entry.name == "nn.functional.grid_sample" and sample.input.dim() == 5 and (
        sample.kwargs.get("mode") == "nearest")
