"""Memory-bound ops against the time in which memory could be moved, and against PyTorch. bench/README.md says how to
run it."""

import argparse
import gc
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from common import library, machine, table  # noqa: E402
from common.machine import names  # noqa: E402
from vs_pytorch.problems import BYTES_PER_SECOND  # noqa: E402

PRECISIONS = ("highest", "bf16", "f64")
LIMITS = {"f64": 1e-12, "highest": 1e-5, "bf16": 2e-2}  # relative difference from PyTorch in f64 (--smoke)
HEAD = ("op", "pass", "dtype", "floor ms", "ours ms", "of floor", "PyTorch ms", "PyTorch/ours", "difference")


def arguments():
    a = argparse.ArgumentParser(prog="bench/memory_bound", description=__doc__)
    machine.add_arguments(a, seconds=0.05)
    a.add_argument("--ops", help="only those whose names contain one of these texts, e.g. norm,pool")
    a.add_argument("--precisions", type=names(PRECISIONS), help="of " + ",".join(PRECISIONS))
    a.add_argument("--ours-only", action="store_true", help="leave PyTorch out")
    a.add_argument("--budget", type=float, default=float("inf"), help="seconds after which no row starts")
    a.add_argument("--smoke", action="store_true", help="small tensors, no times; fails if results differ")
    args = a.parse_args()
    args.precisions = args.precisions or (list(LIMITS) if args.smoke else ["highest", "bf16"])
    return args


def main():
    args = arguments()
    try:
        import torch
    except ModuleNotFoundError:
        print("bench/memory_bound: this Python has no PyTorch", file=sys.stderr)
        sys.exit(77)  # CTest's sign for a skipped test
    from common.clock import Clock
    from common.optimisers import OPTIMISERS, optimiser_of
    from common.passes import difference, dtype_of, pytorch_pass
    from memory_bound.cases import CASES, optimiser_bytes

    voxgrad = library.Library(library.find(args.library))
    stream, end = machine.set_up(torch, voxgrad, args), time.monotonic() + args.budget
    clock = Clock(torch, args.device, stream, repeats=20, seconds=args.seconds)
    run, rows = {"meta": machine.meta(torch, args, "memory_bound"), "rows": []}, [HEAD]

    def finish(name, pass_, precision, moved, ours, theirs):
        """One row. `theirs` computes in f64 for --smoke."""
        row = {"op": name, "pass": pass_, "precision": precision, "floor_ms": 1e3 * moved / BYTES_PER_SECOND,
               "ours_ms": None, "pytorch_ms": None, "difference": None}
        if args.smoke:
            ours()
            expected = theirs()
            row["difference"] = difference(ours.results(expected), expected)
        else:
            row["ours_ms"] = clock.median_ms(ours)
            row["pytorch_ms"] = None if args.ours_only else clock.median_ms(theirs)
        run["rows"].append(row)
        share = row["ours_ms"] and f"{100 * row['floor_ms'] / row['ours_ms']:.0f} %"
        rows.append((name, pass_, {"highest": "f32"}.get(precision, precision), table.formatted(row["floor_ms"]),
                     table.formatted(row["ours_ms"]), share or "-", table.formatted(row["pytorch_ms"]),
                     table.formatted(row["pytorch_ms"] and row["pytorch_ms"] / row["ours_ms"], ".2f"),
                     table.formatted(row["difference"], ".1e")))
        print("measured: " + " | ".join(rows[-1]), file=sys.stderr, flush=True)
        if args.json:
            table.save(run, args.json)

    def theirs_of(tensor):
        """An operand of PyTorch's."""
        if not (args.smoke and tensor.is_floating_point()):
            return tensor
        return tensor.detach().double().requires_grad_(tensor.requires_grad)

    def measure(case, precision):
        operands = case.tensors(dtype_of(precision), args.device, args.smoke)
        their_operands = [theirs_of(t) for t in operands]
        with torch.no_grad():
            y = case.function(*their_operands)
        dtype = torch.float32 if case.name == "cast to f32" else dtype_of(precision)
        y = y.to(dtype) if y.is_floating_point() else y
        for pass_ in ("forward", "backward"):
            if getattr(case, pass_):
                gy = torch.randn_like(y) if pass_ == "backward" else None
                theirs = pytorch_pass(case.function, their_operands, pass_, gy if gy is None else theirs_of(gy))
                with voxgrad.task("memory_bound", case.name, pass_, operands + [gy] * (gy is not None)) as ours:
                    finish(case.name, pass_, precision, case.moved_bytes(pass_, operands, y), ours, theirs)

    def measure_optimiser(name, precision):
        shape = (64, 9) if args.smoke else (1 << 27,)
        value, gradient = (torch.randn(shape, device=args.device).to(dtype_of(precision)) for _ in range(2))
        parameter = theirs_of(value).clone().requires_grad_()
        parameter.grad = theirs_of(gradient)
        optimiser = optimiser_of(name, [parameter])

        def theirs():
            optimiser.step()
            return [parameter.detach()]

        with voxgrad.task("memory_bound", name, "optimiser", [value, gradient]) as ours:
            finish(name, "step", precision, optimiser_bytes(name, value), ours, theirs)

    chosen = (args.ops or "").split(",")
    jobs = [(case.name, measure, case) for case in CASES] + [(name, measure_optimiser, name) for name in OPTIMISERS]
    for precision in args.precisions:
        for name, work, argument in jobs:
            if not any(text in name for text in chosen) or (name == "cast to f32" and precision != "bf16"):
                continue
            if time.monotonic() > end:
                rows.append((name, "", precision, "not run") + ("",) * (len(HEAD) - 4))
                continue
            work(argument, precision)
            gc.collect()
            if args.device == "cuda":
                voxgrad.empty_cache()
                torch.cuda.empty_cache()
    print("\n".join([*table.describe(run["meta"], args.markdown), "", *table.layout(rows, args.markdown)]))
    wrong = [(r["op"], r["pass"], r["precision"]) for r in run["rows"]
             if args.smoke and not r["difference"] < LIMITS[r["precision"]]]
    if wrong:
        sys.exit(f"bench/memory_bound: results differ: {wrong}")


if __name__ == "__main__":
    main()
