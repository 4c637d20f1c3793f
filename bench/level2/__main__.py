"""KernelBench level 2's transposed convolutions with their tails: voxgrad against PyTorch, in one process.
bench/README.md says how to run it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from common import table  # noqa: E402
from common.machine import names  # noqa: E402
from common.passes import difference, dtype_of, pytorch_pass  # noqa: E402
from common.pytorch import torch  # noqa: E402
from common.run import Run, parser, reason  # noqa: E402
from level2.problems import PROBLEMS  # noqa: E402

NUMBERS = [str(p.number) for p in PROBLEMS]
PASSES = ("forward", "step")
PRECISIONS = ("high", "highest", "bf16")
SMOKE_LIMIT = 1e-9  # relative, in f64
HEAD = ("#", "precision", "pass", "ours ms", "PyTorch ms", "PyTorch is", "PyTorch/ours", "difference")


def arguments():
    a = parser("level2", __doc__, 0.3, PRECISIONS)
    a.add_argument("--problems", type=names(NUMBERS), default=NUMBERS, help="e.g. 58,61")
    a.add_argument("--passes", type=names(PASSES), default=PASSES, help="forward, or step: forward and backward")
    a.add_argument("--compile", action="store_true", help="torch.compile too")
    a.add_argument("--smoke", action="store_true", help="tiny shapes in f64; fails if results differ")
    args = a.parse_args()
    args.precisions = ["f64"] if args.smoke else args.precisions or ["high"]
    return args


def pytorch_times(run, function, operands, gy, pass_):
    """The times in ms of PyTorch's forms (memory format, compiled or not), and the reasons why others failed."""
    def last(t):
        return t.detach().to(memory_format=torch.channels_last_3d) if t.dim() == 5 else t.detach()

    forms = {"NCDHW": (operands, gy), "channels last": ([last(t).requires_grad_(t.requires_grad) for t in operands], last(gy))}
    times, failed = {}, {}
    for name, (form, gradient) in forms.items():
        for compiled in (False, True) if run.args.compile else (False,):
            label = name + ", compiled" * compiled
            try:
                call = torch.compile(function, dynamic=False) if compiled else function
                times[label] = run.clock.median_ms(pytorch_pass(call, form, pass_, gradient))
            except Exception as error:  # this PyTorch cannot do it: the row says so
                failed[label] = reason(error)
    return times, failed


def measure(run, problem, precision, pass_):
    smoke = run.args.smoke
    run.set_precision("highest" if smoke else precision)
    problem = problem.small() if smoke else problem
    operands, function = problem.operands(run.args.device, dtype_of(precision)), problem.pytorch
    with torch.no_grad():
        gy = torch.randn_like(function(*operands))
    row = {"problem": problem.number, "precision": precision, "pass": pass_}
    with run.voxgrad.program(problem.function, pass_, operands + [gy] * (pass_ == "step")) as task:
        task()
        theirs = pytorch_pass(function, operands, pass_, gy)()
        row["difference"] = difference(task.results(theirs), theirs)
        del theirs
        row["ours_ms"] = None if smoke else run.clock.median_ms(task)
    row["wrong"] = smoke and not row["difference"] < SMOKE_LIMIT
    row["pytorch_ms"], row["failed"] = ({}, {}) if smoke else pytorch_times(run, function, operands, gy, pass_)
    best, best_ms = table.fastest(row["pytorch_ms"])
    row["ratio"] = best_ms and best_ms / row["ours_ms"]
    run.add(row, (str(problem.number), precision, pass_, table.formatted(row["ours_ms"]), table.formatted(best_ms),
                  best, table.formatted(row["ratio"], ".2f"),
                  f"{row['difference']:.1e}" + " WRONG" * row["wrong"]))


def main():
    args = arguments()
    run = Run("level2", args)
    slices = [(precision, pass_) for precision in args.precisions for pass_ in args.passes]
    for precision, pass_ in slices:
        for problem in PROBLEMS:
            if str(problem.number) not in args.problems:
                continue
            if run.late():
                run.skip(str(problem.number), precision, pass_)
                continue
            measure(run, problem, precision, pass_)
            run.free_memory()
            if args.compile:
                torch.compiler.reset()
    run.print_table(HEAD)
    for precision, pass_ in slices:
        ratios = [r["ratio"] for r in run.results["rows"]
                  if (r["precision"], r["pass"]) == (precision, pass_) and r["ratio"]]
        if ratios:
            print(f"{precision}, {pass_}: geometric mean {table.geometric_mean(ratios):.2f} of {len(ratios)}, "
                  f"ahead on {sum(r > 1 for r in ratios)}")
    run.fail_if_wrong()


if __name__ == "__main__":
    main()
