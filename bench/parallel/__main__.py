"""Training steps of a U-Net on several devices, voxgrad beside PyTorch's DistributedDataParallel.

python3 bench/parallel --program build/cuda-release/bench/bench_parallel --device cuda --ranks 1,2

Every rank has a batch of its own, so N ranks do N times the work of one: the speed-up is N t(1) / t(N). "not hidden" is
how much longer a step takes than one without communication. PyTorch's time is that of the faster memory format.
"""

import argparse
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "tests" / "dist"))
sys.path.insert(0, str(HERE.parent))
import ranks as launcher  # noqa: E402
from common import table  # noqa: E402

HEAD = ("precision", "ranks", "ours ms", "speed-up", "not hidden ms", "PyTorch ms", "speed-up", "not hidden ms",
        "PyTorch/ours")


def run(count, command, mpirun=None):
    """The line of JSON that rank 0 prints."""
    if mpirun:
        command = [*mpirun.split(), "-n", str(count), *command]
        processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True)]
    else:
        processes = launcher.start(count, command, stdout=subprocess.PIPE, text=True)
    texts = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        sys.exit("bench/parallel: failed: " + " ".join(map(str, command)))
    return json.loads(texts[0].strip().splitlines()[-1])


def main():
    a = argparse.ArgumentParser(prog="bench/parallel", description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--program", required=True, help="bench_parallel")
    a.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    a.add_argument("--ranks", default="1,2", help="numbers of ranks")
    a.add_argument("--precisions", default=None, help="of high,bf16,highest (default: high,bf16; on CPUs highest)")
    a.add_argument("--mpirun", default="mpirun --oversubscribe --bind-to none --allow-run-as-root",
                   help="starts CPU ranks")
    a.add_argument("--size", type=int, default=128)
    a.add_argument("--batch", type=int, default=2, help="of a rank")
    a.add_argument("--narrow", type=int, default=1, help="divides the channels")
    a.add_argument("--steps", type=int, default=20)
    a.add_argument("--warm-up", type=int, default=5)
    a.add_argument("--rounds", type=int, default=2, help="of voxgrad and PyTorch in turns; the fastest counts")
    a.add_argument("--no-pytorch", action="store_true")
    a.add_argument("--json", help="keeps all numbers in this file")
    args = a.parse_args()
    pytorch = not args.no_pytorch and importlib.util.find_spec("torch") is not None
    precisions = (args.precisions or ("high,bf16" if args.device == "cuda" else "highest")).split(",")

    every, lines = [], []
    for precision in precisions:
        first = {}
        for count in map(int, args.ranks.split(",")):
            options = ["--device", args.device, "--precision", precision]
            for name in ("size", "batch", "narrow", "steps", "warm_up"):
                options += ["--" + name.replace("_", "-"), str(getattr(args, name))]
            results = {"voxgrad": [], "PyTorch": []}
            for _ in range(args.rounds):
                results["voxgrad"].append(run(count, [args.program, *options],
                                              args.mpirun if args.device == "cpu" else None))
                for layout in ("0", "1") if pytorch else ():
                    command = [sys.executable, str(HERE / "pytorch.py"), "--channels-last", layout, *options]
                    results["PyTorch"].append(run(count, command))
            line = [precision, str(count)]
            best = {}
            for library, found in results.items():
                if not found:
                    line += ["", "", ""]
                    continue
                every += [dict(row, precision=precision) for row in found]
                best[library] = min(found, key=lambda row: row["ms"])
                ms = best[library]["ms"]
                first.setdefault(library, (count, ms))
                base, base_ms = first[library]
                line += [f"{ms:.2f}", f"{count / base * base_ms / ms:.2f}", f"{ms - best[library]['ms_alone']:.2f}"]
            line.append(f"{best['PyTorch']['ms'] / best['voxgrad']['ms']:.2f}" if pytorch else "")
            lines.append(tuple(line))
            print("measured: " + " | ".join(line), file=sys.stderr, flush=True)
    print("\n".join(table.layout([HEAD, *lines], False)))
    if args.json:
        Path(args.json).write_text(json.dumps(every, indent=1))


if __name__ == "__main__":
    main()
