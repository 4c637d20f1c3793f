"""docs/differences.md, made from the reports of a full run."""

import textwrap
from collections import Counter

import torch

import differences

COLUMNS = ("samples", "gradients", "second gradients", "errors refused", "not expressible", "differences")

TEXT = """# Where voxgrad differs from PyTorch

`./run opinfo --table docs/differences.md` writes this file. It runs the samples that PyTorch tests its own ops with
(its OpInfo database) through voxgrad, and compares results, gradients and second gradients with PyTorch's, in all
dtypes and in several layouts of the operands. `tests/opinfo/README.md` says what is compared.

A difference is a failure of the test, unless one of these decisions explains it:

{rules}
PyTorch's samples do not show these decisions:

- **i16, u16 and i32 are only stored.** Scans and labels have these dtypes. Copies, casts, views and the ops that move
  elements (`cat`, `pad`, `where`, `gather`, ...) take them, as do `sum`, `prod` and the cumulative ops, which give an
  i64. All other ops refuse them: cast with `to(vox::f32)` or `to(vox::i64)`. PyTorch computes in i16 and i32.
- **`argmax` and `argmin` take bool.** They return the first true, and the first false. PyTorch refuses bool.
- **A C++ bool is no number.** `x + true` and `pow(x, true)` do not compile. Calls that store or compare elements
  (`full`, `fill_`, `where`, `masked_fill`, `pad`, `eq`, `ne`) take true and false.
- **A tensor has at most 8 dimensions.** In PyTorch it has up to 64.
- **`x += y` writes in place or throws.** In-place writes are never recorded. Where a side requires grad, write
  `x = x + y`, or write under `vox::no_grad()`.
- **`x == y` is no tensor.** The operators `<`, `<=`, `>` and `>=` give tensors of bool, as `lt`, `le`, `gt` and `ge`
  do. Equality is `eq(x, y)` for each element, and `equal(x, y)` for whole tensors.
- **`max(x, 1)` and `max(x, {{1}})` differ.** An integer gives values and indices, as PyTorch's `max(x, 1)`. A list of
  dims gives a tensor, as PyTorch's `amax`, and equal extrema share the gradient.
- **A function of your own may not have the name and the arguments of an op.** C++ finds `vox::relu` for an unqualified
  `relu(x)`, because `x` is a `vox::Tensor`. That makes calls short, and a `relu(const Tensor&)` of your own ambiguous
  ("call of overloaded 'relu(vox::Tensor&)' is ambiguous"). Qualify the call (`mine::relu(x)`) or choose another name.
  `std` is also the name of a namespace: after `using namespace vox;` write `vox::std(x)`, because `std(x)` is ambiguous.
- **`interpolate` computes positions in double.** PyTorch computes them in float. In `nearest` mode, if a
  `scale_factor` leaves a size unchanged (1.1 for 7 cells), the result equals PyTorch's for channels_last tensors, but
  not PyTorch's for dense ones. In `linear` mode a cell of weight 0 is left out. PyTorch multiplies it, which gives NaN
  for an infinite cell.
- **`grid_sample` leaves out a cell of weight 0**, as `interpolate` does. A NaN in the grid reads 0 with padding zeros and
  the first cell with the others, on all devices. Some of PyTorch's CPU kernels give NaN, or the last cell. There is no
  mode `bicubic`. The second gradient, which PyTorch does not have, exists.
- **The gradient of `logsumexp` is 0 where every element is -inf.** PyTorch's is NaN.
- **The second gradient of `softplus` at its threshold is that of its formula.** So is PyTorch's first gradient there,
  but its second is 0.
- **The gradient of `smooth_l1_loss` with beta 0 is 0 where input and target are equal,** as that of `l1_loss`.
  PyTorch's is -1.
- **An infinite gradient of `binary_cross_entropy_with_logits` stays infinite.** PyTorch's gradient of x is NaN where
  the loss of x is 0.
- **Padding does not meet the weights of a convolution.** A tap outside of the input adds nothing. PyTorch multiplies
  the padding's 0 by the weight, which gives NaN if that is infinite.
- **Windows of padding alone pass no gradient.** In `max_pool`, PyTorch adds it to some cell.
- **The padding of `avg_pool3d` belongs to the input that a window must fit.** So it does in PyTorch's `avg_pool2d`,
  and not in its `avg_pool3d`.
- **`batch_norm` takes 2 to 5 dimensions.** PyTorch takes more, and returns an empty tensor of rank 1.
- **Convolutions need channels.** Without input or output channels they are an error. PyTorch's result has no channels.
- **`binary_cross_entropy` checks its probabilities on the CPU alone.** On CUDA the loss of one outside [0, 1] is NaN.
- **The centered `RMSprop` has no momentum.** PyTorch combines them.
- **`one_cycle_lr` sets the learning rate alone.** PyTorch's cycles the momentum too, unless `cycle_momentum=False`.
- **`Dropout2d` and `Dropout3d` read one axis less as (C, ...).** PyTorch's `Dropout2d` reads rank 3 as (N, C, L).
- **`weight_norm` and `spectral_norm` are layers around a layer.** `nn::WeightNorm<nn::Conv3d>` has the names of
  `torch.nn.utils.weight_norm` (`weight_g`, `weight_v`), not those of `torch.nn.utils.parametrizations`
  (`parametrizations.weight.original0`). The default `dim` of both is PyTorch's.
- **`scaled_dot_product_attention` needs equal leading dimensions.** Masks broadcast; key and value do not. In f32 on CUDA,
  an infinite element of query, key or value may make NaN where PyTorch has an infinity.
- **An assigned parameter is an error.** `head.weight = embedding.weight` does not tie weights: `parameters()` and
  `state_dict()` throw ValueError if nothing holds a registered tensor any more.
- **Schedules need a rate above 0.** A `base_lr` that is left out would be 0.
- **An empty batch needs valid sizes.** Convolutions check spatial sizes and `output_padding` as for any other batch.
  PyTorch accepts an empty batch of any size.

## What is not there

On purpose, because 3-D networks need none of it: dtypes i8, u32 and u64; `x[index]` with tensors (`index_select`,
`gather`, `scatter` and `nonzero` name their dimension); linear algebra beyond `matmul` and `einsum`; sparse and complex
tensors; in-place ops on the tape; named and nested tensors; integer division. `einsum` takes letters, and no "...";
`meshgrid` is that of `indexing="ij"`; `scatter` has no `reduce` other than `scatter_add`; `quantile` takes one number
and interpolates.

What `slice` and the views do in a line has no op either: `chunk`, `split` and `unbind` (the table below composes them),
`view` (`reshape` is one where the strides allow it), `masked_select`. Layers that are not there: `ModuleDict`, recurrent
and attention layers, pools for 2-D as layers, `PixelShuffle` (the ops are there); `padding_mode` of convolutions.

DICOM files are not read: dcm2niix makes NIfTI files of them. Sliding windows follow nnU-Net's plan, not MONAI's.

## Op by op

PyTorch {version}, {device}. A sample is a call in one dtype and one layout. "Errors refused" are calls that both
PyTorch and voxgrad refuse. "Not expressible" are samples with an argument that voxgrad's op does not have, such as
`out`, `rounding_mode` or `dtype`.

{table}

In addition, {refused} calls on operands of 2^40 elements (expanded from a few) were refused at once, and {views}
returned views.
"""


def total(reports):
    sums = Counter(tasks=len(reports))
    for report in reports:
        sums.update(report.counts)
        sums["differences"] += sum(report.differences.values())
        sums["failures"] += len(report.failures)
    return sums


def bullet(rule, samples):
    text = f"**{rule.title}.** {rule.reason} Samples: {samples}."
    return textwrap.fill(text, 116, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False) + "\n"


def row(name, counts):
    return f"| {name} | " + " | ".join(str(counts[c] or "") for c in COLUMNS) + " |"


def write(path, reports, device):
    by_rule, rows, everything = Counter(), {}, Counter()
    for report in reports:
        by_rule.update(report.differences)
        counts = report.counts + Counter(differences=sum(report.differences.values()))
        everything.update(counts)
        name = report.name.split(": ")[0] if report.name.startswith("huge") else report.name
        rows.setdefault(name, Counter()).update(counts)
    huge = rows.pop("huge tensors", Counter())
    rules = "".join(bullet(r, by_rule[r.title]) for r in differences.RULES)
    lines = ["| op | " + " | ".join(COLUMNS) + " |", "|---|" + "---:|" * len(COLUMNS)]
    lines += [row(f"`{name}`", rows[name]) for name in sorted(rows, key=str.lower)]
    lines += [row("**all**", everything)]
    text = TEXT.format(rules=rules, version=torch.__version__, device=device, table="\n".join(lines),
                       refused=huge["huge, refused"], views=huge["huge, views"])
    with open(path, "w") as out:
        out.write(text)
