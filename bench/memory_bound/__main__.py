"""Memory-bound ops against the time in which memory could be moved, and against PyTorch. bench/README.md says how to
run it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from common import table  # noqa: E402
from common.optimisers import OPTIMISERS, optimiser_of  # noqa: E402
from common.passes import difference, dtype_of, pytorch_pass  # noqa: E402
from common.pytorch import torch  # noqa: E402
from common.run import Run, parser  # noqa: E402
from memory_bound.cases import CASES, optimiser_bytes  # noqa: E402
from vs_pytorch.problems import BYTES_PER_SECOND  # noqa: E402

LIMITS = {"f64": 1e-12, "highest": 1e-5, "bf16": 2e-2}  # relative difference from PyTorch in f64 (--smoke)
HEAD = ("op", "pass", "dtype", "floor ms", "ours ms", "of floor", "PyTorch ms", "PyTorch/ours", "difference")


def arguments():
    a = parser("memory_bound", __doc__, 0.05, list(LIMITS))
    a.add_argument("--ops", default="", help="only those whose names contain one of these texts, e.g. norm,pool")
    a.add_argument("--ours-only", action="store_true", help="leave PyTorch out")
    a.add_argument("--smoke", action="store_true", help="small tensors, no times; fails if results differ")
    args = a.parse_args()
    args.precisions = args.precisions or (list(LIMITS) if args.smoke else ["highest", "bf16"])
    return args


def add_row(run, name, pass_, precision, moved, ours, theirs):
    """Measures a row. `theirs` computes in f64 for --smoke."""
    row = {"op": name, "pass": pass_, "precision": precision, "floor_ms": 1e3 * moved / BYTES_PER_SECOND,
           "ours_ms": None, "pytorch_ms": None, "difference": None, "wrong": False}
    if run.args.smoke:
        ours()
        expected = theirs()
        row["difference"] = difference(ours.results(expected), expected)
        row["wrong"] = not row["difference"] < LIMITS[precision]
    else:
        row["ours_ms"] = run.clock.median_ms(ours)
        row["pytorch_ms"] = None if run.args.ours_only else run.clock.median_ms(theirs)
    ours_ms, theirs_ms = row["ours_ms"], row["pytorch_ms"]
    run.add(row, (name, pass_, {"highest": "f32"}.get(precision, precision), table.formatted(row["floor_ms"]),
                  table.formatted(ours_ms), table.formatted(ours_ms and row["floor_ms"] / ours_ms, ".0%"),
                  table.formatted(theirs_ms), table.formatted(theirs_ms and theirs_ms / ours_ms, ".2f"),
                  table.formatted(row["difference"], ".1e") + " WRONG" * row["wrong"]))


def theirs_of(tensor, smoke):
    """PyTorch's operand: for --smoke a copy in f64."""
    if not (smoke and tensor.is_floating_point()):
        return tensor
    return tensor.detach().double().requires_grad_(tensor.requires_grad)


def measure_op(run, case, precision):
    smoke = run.args.smoke
    operands = case.tensors(dtype_of(precision), run.args.device, smoke)
    their_operands = [theirs_of(t, smoke) for t in operands]
    with torch.no_grad():
        y = case.pytorch(*their_operands)
    dtype = torch.float32 if case.name == "cast to f32" else dtype_of(precision)
    y = y.to(dtype) if y.is_floating_point() else y
    for pass_, moved in zip(case.passes, (case.forward, case.backward)):
        if moved:
            gy = torch.randn_like(y).contiguous() if pass_ != "forward" else None
            theirs = pytorch_pass(case.pytorch, their_operands, pass_, gy if gy is None else theirs_of(gy, smoke))
            with run.voxgrad.program(case.function, pass_, operands + [gy] * (gy is not None)) as ours:
                add_row(run, case.name, pass_, precision, case.moved_bytes(pass_, operands, y), ours, theirs)


def measure_optimiser(run, name, precision):
    shape = (64, 9) if run.args.smoke else (1 << 27,)
    value, gradient = (torch.randn(shape, device=run.args.device).to(dtype_of(precision)) for _ in range(2))
    parameter = theirs_of(value, run.args.smoke).clone().requires_grad_()
    parameter.grad = theirs_of(gradient, run.args.smoke)
    optimiser = optimiser_of(name, [parameter])

    def theirs():
        optimiser.step()
        return [parameter.detach()]

    with run.voxgrad.task("optimiser", name, "step", [value, gradient]) as ours:
        add_row(run, name, "step", precision, optimiser_bytes(name, value), ours, theirs)


def main():
    args = arguments()
    run = Run("memory_bound", args)
    jobs = [(case.name, measure_op, case) for case in CASES] + [(name, measure_optimiser, name) for name in OPTIMISERS]
    for precision in args.precisions:
        for name, measure, what in jobs:
            if not any(text in name for text in args.ops.split(",")) or (name == "cast to f32" and precision != "bf16"):
                continue
            if run.late():
                run.skip(name, "", precision)
                continue
            measure(run, what, precision)
            run.free_memory()
    run.print_table(HEAD)
    run.fail_if_wrong()


if __name__ == "__main__":
    main()
