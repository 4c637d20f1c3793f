"""voxgrad's transposed convolutions against PyTorch's, in one process. bench/README.md says how to run it."""

import argparse
import datetime
import platform
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))
from vs_pytorch import report  # noqa: E402
from vs_pytorch.problems import PASSES, PRECISIONS, problems  # noqa: E402


def names(allowed):
    def parse(text):
        chosen = text.split(",")
        wrong = [name for name in chosen if name not in allowed]
        if wrong:
            raise argparse.ArgumentTypeError(f"got {','.join(wrong)}, allowed are {','.join(allowed)}")
        return chosen
    return parse


def arguments():
    numbers = [str(p.number) for p in problems("cuda", False)]
    a = argparse.ArgumentParser(prog="bench/vs_pytorch", description=__doc__)
    a.add_argument("--library", help="libvoxgrad_bench.so (default: the newest under build/)")
    a.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    a.add_argument("--threads", type=int, help="CPU threads of both (default: torch's)")
    a.add_argument("--problems", type=names(numbers), default=numbers, help="e.g. 58,61")
    a.add_argument("--passes", type=names(PASSES), default=list(PASSES), help="of " + ",".join(PASSES))
    a.add_argument("--precisions", type=names(PRECISIONS), help="of " + ",".join(PRECISIONS))
    a.add_argument("--repeats", type=int, default=30, help="timed runs of each, at most (default 30)")
    a.add_argument("--seconds", type=float, default=1.0, help="for the timed runs of each (default 1)")
    a.add_argument("--minutes", type=float, help="start no row after that; the rest is printed as not run")
    a.add_argument("--compile", action="store_true", help="torch.compile too, in forward")
    a.add_argument("--no-strict-search", action="store_true",
                   help="cudnn.benchmark off for PyTorch's strict f32, whose search takes half a minute a row")
    a.add_argument("--smoke", action="store_true", help="tiny shapes: does it work at all?")
    a.add_argument("--seed", type=int, help="of the operands (default: from the clock)")
    a.add_argument("--commit", help="what is measured (default: ask git)")
    a.add_argument("--json", help="write everything there, after each row")
    a.add_argument("--merge", nargs="+", metavar="JSON", help="measure nothing: print these runs as one")
    a.add_argument("--markdown", action="store_true", help="print Markdown tables")
    return a.parse_args()


def command_output(*command):
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def commit():
    head = command_output("git", "rev-parse", "HEAD")
    dirty = command_output("git", "status", "--porcelain", "--untracked-files=no")
    return head and head + ("-dirty" if dirty else "")


def cpu_name():
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def meta(torch, args):
    cuda = args.device == "cuda"
    cores = torch.multiprocessing.cpu_count()
    return {
        "commit": args.commit or commit(),
        "machine": (torch.cuda.get_device_name() + ", " if cuda else "") + f"{cpu_name()}, {cores} cores",
        "driver": cuda and command_output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader",
                                          "--id=0") or None,
        "versions": f"torch {torch.__version__}" + (f", cuDNN {torch.backends.cudnn.version()}" if cuda else ""),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "command": " ".join(["bench/vs_pytorch", *sys.argv[1:]]),
        "device": args.device, "seed": args.seed, "threads": args.threads, "smoke": args.smoke,
    }


def library_path(args):
    if args.library:
        return args.library
    found = sorted(ROOT.glob("build/*/bench/libvoxgrad_bench.so"), key=lambda path: path.stat().st_mtime)
    if not found:
        sys.exit("vs_pytorch: no libvoxgrad_bench.so under build/; build the target voxgrad_bench first")
    return found[-1]


def measure(args):
    import torch  # here: --merge needs none
    from vs_pytorch.library import Voxgrad
    from vs_pytorch.measure import Bench, Clock

    voxgrad, stream = Voxgrad(library_path(args)), None
    if args.device == "cuda":
        if not torch.cuda.is_available():
            sys.exit("vs_pytorch: PyTorch sees no GPU here; --device cpu compares on the CPU")
        stream = torch.cuda.ExternalStream(voxgrad.stream())
        torch.cuda.set_stream(stream)
    else:
        args.threads = args.threads or torch.get_num_threads()
    if args.threads:
        torch.set_num_threads(args.threads)
        voxgrad.set_threads(args.threads)
    args.seed = int(time.time()) if args.seed is None else args.seed
    torch.manual_seed(args.seed)

    run, start = {"meta": meta(torch, args), "rows": []}, time.monotonic()
    clock = Clock(torch, args.device, stream, args.repeats, args.seconds)
    bench = Bench(torch, voxgrad, args.device, stream, clock, args.compile, not args.no_strict_search)
    precisions = args.precisions or (["highest"] if args.device == "cpu" else PRECISIONS)
    for precision in precisions:
        for p in problems(args.device, args.smoke):
            for pass_ in args.passes:
                late = args.minutes and time.monotonic() - start > 60 * args.minutes
                if str(p.number) not in args.problems or late:
                    continue
                begin = time.monotonic()
                try:
                    row = bench.row(p, pass_, precision)
                except RuntimeError as error:
                    row = {"problem": p.number, "pass": pass_, "precision": precision,
                           "failed": (str(error).splitlines() or ["?"])[0][:200]}
                row["seconds"] = round(time.monotonic() - begin, 1)
                print(f"{precision} {pass_} {p.number}: {row['seconds']} s", file=sys.stderr, flush=True)
                run["rows"].append(row)
                if args.json:
                    report.save(run, args.json)
    return run


def main():
    args = arguments()
    if args.merge:
        try:
            run = report.merge([report.load(path) for path in args.merge])
        except report.MergeError as error:
            sys.exit(f"vs_pytorch: {error}")
        if args.json:
            report.save(run, args.json)
    else:
        run = measure(args)
    print(report.tables(run, args.markdown))
    wrong = [report.key(r) for r in run["rows"] if "failed" in r or not r.get("ours_correct", True)]
    if wrong:
        sys.exit(f"vs_pytorch: failed or wrong: {wrong}")


if __name__ == "__main__":
    main()
