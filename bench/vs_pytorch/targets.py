"""What voxgrad wants to reach, and whether a row does. Knows no torch.

A row of a problem is judged by its time against PyTorch's best; it also counts as reached at 75 % of the floor
(60 % on problem 72). `highest` is judged against PyTorch's best *TF32* time, that of the row of `high`."""

# At least so many times faster than PyTorch's best, on every problem.
BEST = {("high", "forward"): 2.0, ("high", "grad-input"): 1.5, ("high", "grad-weight"): 1.5,
        ("bf16", "forward"): 1.5, ("f16", "forward"): 1.5}
# The same in the geometric mean, against the best and against the plain call.
MEAN_BEST = {("high", "forward"): 4.0, ("high", "grad-input"): 3.0, ("high", "grad-weight"): 3.0}
MEAN_CALL = {("high", "forward"): 10.0, ("high", "step"): 3.0}
# `highest` against PyTorch's best TF32: not slower, on 68 within 1.2 times.
TF32 = {number: 1 / 1.2 if number == 68 else 1.0 for number in (58, 61, 68, 70, 72, 73, 77)}
TF32_PASSES = ("forward", "grad-input", "grad-weight")
# Bytes that a pass of these problems may hold beyond its results: grad-weight's partial sums (32 MiB, or one
# padded copy of dweight, which is far smaller here). Packed weights are the only other workspace, and smaller.
WORKSPACE = 32 << 20


def floor_share(number):
    return 0.60 if number == 72 else 0.75


def has_target(precision, pass_):
    return (precision, pass_) in BEST or (precision == "highest" and pass_ in TF32_PASSES)


def verdict(row, ratio, tf32_ratio):
    """"yes" or "no", and why, for one row; "-" where there is no target or nothing to judge. `ratio` is best /
    ours, `tf32_ratio` PyTorch's best TF32 time / ours; None where they are not known."""
    precision, pass_, number = row["precision"], row["pass"], row["problem"]
    if not has_target(precision, pass_) or ratio is None:
        return "-"
    share = row["floor_ms"] / row["ours_ms"] if row.get("floor_ms") else 0
    if precision == "highest":
        got, wanted, name = tf32_ratio, TF32[number], "TF32 best"
    else:
        got, wanted, name = ratio, BEST[precision, pass_], "best"
    if share >= floor_share(number):
        return f"yes: {100 * share:.0f} % of floor"
    if got is None:
        return "- (no row of high)"
    return f"{'yes' if got >= wanted else 'no'}: {got:.2f} of {wanted:.2f} x {name}"
