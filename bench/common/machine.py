"""What all benchmarks share: arguments, set-up, and the facts about a run (commit, machine, versions)."""

import argparse
import datetime
import platform
import subprocess
import sys
import time
from pathlib import Path

from .library import ROOT


def names(allowed):
    """A parser, for argparse, of a comma-separated list of `allowed` names."""
    def parse(text):
        chosen = text.split(",")
        wrong = [name for name in chosen if name not in allowed]
        if wrong:
            raise argparse.ArgumentTypeError(f"got {','.join(wrong)}, allowed are {','.join(allowed)}")
        return chosen
    return parse


def parser(program, description, seconds, precisions):
    """A parser with the arguments that all these benchmarks have; `seconds` is the default of --seconds."""
    a = argparse.ArgumentParser(prog="bench/" + program, description=description)
    a.add_argument("--library", help="libvoxgrad_bench.so (default: the newest under build/)")
    a.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    a.add_argument("--threads", type=int, help="CPU threads of both (default: torch's)")
    a.add_argument("--seconds", type=float, default=seconds, help=f"for the timed runs of each (default {seconds:g})")
    a.add_argument("--seed", type=int, help="of the operands (default: from the clock)")
    a.add_argument("--commit", help="what is measured (default: ask git)")
    a.add_argument("--json", help="write everything there, after each row")
    a.add_argument("--markdown", action="store_true", help="print Markdown tables")
    a.add_argument("--precisions", type=names(precisions), help="of " + ",".join(precisions))
    a.add_argument("--budget", type=float, default=float("inf"), help="seconds after which no row starts")
    return a


def set_up(torch, library, args):
    """Sets seeds and threads of both libraries. Returns the stream in which both work; None on the CPU."""
    stream = None
    if args.device == "cuda":
        if not torch.cuda.is_available():
            sys.exit("bench: PyTorch sees no GPU here; --device cpu compares on the CPU")
        stream = torch.cuda.ExternalStream(library.stream())
        torch.cuda.set_stream(stream)
    else:
        args.threads = args.threads or torch.get_num_threads()
    if args.threads:
        torch.set_num_threads(args.threads)
        library.set_threads(args.threads)
    args.seed = int(time.time()) if args.seed is None else args.seed
    torch.manual_seed(args.seed)
    return stream


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


def meta(torch, args, program):
    cuda = args.device == "cuda"
    cores = torch.multiprocessing.cpu_count()
    return {
        "commit": args.commit or commit(),
        "machine": (torch.cuda.get_device_name() + ", " if cuda else "") + f"{cpu_name()}, {cores} cores",
        "driver": cuda and command_output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader",
                                          "--id=0") or None,
        "versions": f"torch {torch.__version__}" + (f", cuDNN {torch.backends.cudnn.version()}" if cuda else ""),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "command": " ".join([f"bench/{program}", *sys.argv[1:]]),
        "device": args.device, "seed": args.seed, "threads": args.threads,
    }
