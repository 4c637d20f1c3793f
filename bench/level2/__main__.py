"""KernelBench level 2's transposed convolutions with their tails: voxgrad against PyTorch, in one process.
bench/README.md says how to run it."""

import argparse
import gc
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from common import library, machine, table  # noqa: E402
from common.machine import names  # noqa: E402

NUMBERS = [str(n) for n in (3, 13, 15, 20, 26, 34, 38, 49, 50, 58, 60, 61, 72, 74, 77, 78, 89, 96, 100)]
PASSES = ("forward", "step")
PRECISIONS = ("high", "highest", "bf16")
SMOKE_LIMIT = 1e-9  # relative, in f64
HEAD = ("#", "precision", "pass", "ours ms", "PyTorch ms", "PyTorch is", "PyTorch/ours", "difference")


def arguments():
    a = argparse.ArgumentParser(prog="bench/level2", description=__doc__)
    machine.add_arguments(a, seconds=0.3)
    a.add_argument("--problems", type=names(NUMBERS), default=NUMBERS, help="e.g. 58,61")
    a.add_argument("--passes", type=names(PASSES), default=PASSES, help="forward, or step: forward and backward")
    a.add_argument("--precisions", type=names(PRECISIONS), default=["high"], help="of " + ",".join(PRECISIONS))
    a.add_argument("--compile", action="store_true", help="torch.compile too")
    a.add_argument("--budget", type=float, default=float("inf"), help="seconds after which no row starts")
    a.add_argument("--smoke", action="store_true", help="tiny shapes in f64; fails if results differ")
    return a.parse_args()


def main():
    args = arguments()
    try:
        import torch
    except ModuleNotFoundError:
        print("bench/level2: this Python has no PyTorch", file=sys.stderr)
        sys.exit(77)  # CTest's sign for a skipped test
    from common.clock import Clock
    from common.passes import difference, dtype_of, pytorch_pass, set_precision
    from level2.problems import PROBLEMS

    voxgrad = library.Library(library.find(args.library))
    stream, end = machine.set_up(torch, voxgrad, args), time.monotonic() + args.budget
    clock = Clock(torch, args.device, stream, repeats=20, seconds=args.seconds)
    torch.backends.cudnn.benchmark = True

    def measure(problem, precision, pass_):
        set_precision("highest" if args.smoke else precision)
        voxgrad.set_precision("highest" if args.smoke else precision)
        operands = problem.operands(args.device, torch.float64 if args.smoke else dtype_of(precision))
        function = problem.function()
        with torch.no_grad():
            y = function(*operands)
        gy = torch.randn_like(y)
        row = {"problem": problem.number, "precision": precision, "pass": pass_, "pytorch_ms": {}, "failed": {}}

        with voxgrad.task("level2", str(problem.number), pass_, operands + [gy] * (pass_ == "step"),
                          problem.options()) as task:
            task()
            theirs = pytorch_pass(function, operands, pass_, gy)()
            row["difference"] = difference(task.results(theirs), theirs)
            del theirs
            row["ours_ms"] = None if args.smoke else clock.median_ms(task)
        if args.smoke:
            return row

        def last(t):
            return t.detach().to(memory_format=torch.channels_last_3d) if t.dim() == 5 else t.detach()

        forms = {"NCDHW": (operands, gy), "channels last": ([last(t).requires_grad_() for t in operands], last(gy))}
        for name, (form, gradient) in forms.items():
            for compiled in (False, True) if args.compile else (False,):
                label = name + ", compiled" * compiled
                try:
                    call = torch.compile(function, dynamic=False) if compiled else function
                    row["pytorch_ms"][label] = clock.median_ms(pytorch_pass(call, form, pass_, gradient))
                except Exception as error:  # this PyTorch cannot do it: the row says so
                    row["failed"][label] = (str(error).splitlines() or ["?"])[0][:200]
        return row

    def cells(row):
        best = min(row["pytorch_ms"], key=row["pytorch_ms"].get, default=None)
        best_ms = row["pytorch_ms"].get(best)
        row["ratio"] = best_ms and best_ms / row["ours_ms"]
        return (str(row["problem"]), row["precision"], row["pass"], table.formatted(row["ours_ms"]),
                table.formatted(best_ms), best or "-", table.formatted(row["ratio"], ".2f"),
                f"{row['difference']:.1e}")

    run, rows = {"meta": machine.meta(torch, args, "level2"), "rows": []}, [HEAD]
    for precision in ["f64"] if args.smoke else args.precisions:
        for pass_ in args.passes:
            for problem in PROBLEMS:
                if str(problem.number) not in args.problems:
                    continue
                if time.monotonic() > end:
                    rows.append((str(problem.number), precision, pass_, "not run") + ("",) * (len(HEAD) - 4))
                    continue
                run["rows"].append(measure(problem.small() if args.smoke else problem, precision, pass_))
                rows.append(cells(run["rows"][-1]))
                print("measured: " + " | ".join(rows[-1]), file=sys.stderr, flush=True)
                gc.collect()
                if args.device == "cuda":
                    voxgrad.empty_cache()
                    torch.cuda.empty_cache()
                    torch.compiler.reset() if args.compile else None
                if args.json:
                    table.save(run, args.json)
    print("\n".join([*table.describe(run["meta"], args.markdown), "", *table.layout(rows, args.markdown)]))
    for precision in args.precisions:
        for pass_ in args.passes:
            ratios = [r["ratio"] for r in run["rows"]
                      if (r["precision"], r["pass"]) == (precision, pass_) and r["ratio"]]
            if ratios:
                print(f"{precision}, {pass_}: geometric mean {table.geometric_mean(ratios):.2f} of {len(ratios)}, "
                      f"ahead on {sum(r > 1 for r in ratios)}")
    if args.smoke and not all(r["difference"] < SMOKE_LIMIT for r in run["rows"]):
        sys.exit(f"bench/level2: results differ by {SMOKE_LIMIT} or more")


if __name__ == "__main__":
    main()
