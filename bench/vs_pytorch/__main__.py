"""voxgrad's transposed convolutions against PyTorch's, in one process. bench/README.md says how to run it."""

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from common import table  # noqa: E402
from common.machine import names, parser  # noqa: E402
from vs_pytorch import report  # noqa: E402
from vs_pytorch.problems import PASSES, PRECISIONS, problems  # noqa: E402


def arguments():
    numbers = [str(p.number) for p in problems("cuda", False)]
    a = parser("vs_pytorch", __doc__, 1.0, PRECISIONS)
    a.add_argument("--problems", type=names(numbers), default=numbers, help="e.g. 58,61")
    a.add_argument("--passes", type=names(PASSES), default=list(PASSES), help="of " + ",".join(PASSES))
    a.add_argument("--repeats", type=int, default=30, help="timed runs of each, at most (default 30)")
    a.add_argument("--minutes", type=lambda minutes: 60 * float(minutes), dest="budget", metavar="MINUTES",
                   default=argparse.SUPPRESS, help="--budget in minutes; what was not run is printed as such")
    a.add_argument("--compile", action="store_true", help="torch.compile too, in forward")
    a.add_argument("--no-strict-search", action="store_true",
                   help="cudnn.benchmark off for PyTorch's strict f32, whose search takes half a minute a row")
    a.add_argument("--smoke", action="store_true", help="tiny shapes: does it work at all?")
    a.add_argument("--merge", nargs="+", metavar="JSON", help="measure nothing: print these runs as one")
    return a.parse_args()


def measure(args):
    from common.run import Run, reason  # here: --merge needs no torch
    from vs_pytorch.measure import measured_row

    run = Run("vs_pytorch", args, args.repeats, announce=False)
    run.results["meta"]["smoke"] = args.smoke
    for precision in args.precisions or (["highest"] if args.device == "cpu" else PRECISIONS):
        for p in problems(args.device, args.smoke):
            for pass_ in args.passes:
                if str(p.number) not in args.problems or run.late():
                    continue
                begin = time.monotonic()
                try:
                    row = measured_row(run, p, pass_, precision)
                except RuntimeError as error:
                    row = {"problem": p.number, "pass": pass_, "precision": precision, "failed": reason(error)}
                row["seconds"] = round(time.monotonic() - begin, 1)
                print(f"{precision} {pass_} {p.number}: {row['seconds']} s", file=sys.stderr, flush=True)
                run.results["rows"].append(row)
                run.save()
    return run.results


def main():
    args = arguments()
    if args.merge:
        try:
            run = report.merge([report.load(path) for path in args.merge])
        except report.MergeError as error:
            sys.exit(f"vs_pytorch: {error}")
        if args.json:
            table.save(run, args.json)
    else:
        run = measure(args)
    print(report.tables(run, args.markdown))
    wrong = [report.key(r) for r in run["rows"] if "failed" in r or not r.get("ours_correct", True)]
    if wrong:
        sys.exit(f"vs_pytorch: failed or wrong: {wrong}")


if __name__ == "__main__":
    main()
