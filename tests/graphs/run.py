"""Makes graphs by number, checks them in several processes, shrinks what fails, and reports."""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import torch

import generate
import judge
import routes
import shrink
import theirs
import voxgrad
from graph import parse
from judge import Failure

BROKEN = ("tanh", "cumsum", "nn.functional.group_norm")  # ops whose gradient the self-test makes wrong


def check(graph, values, counts):
    """Throws Failure. Returns digests of what the routes computed, which another instruction set must equal."""
    judge.check(graph, values, counts)
    digests = []
    for dtype in (torch.float64, (torch.float32, torch.bfloat16, torch.float16)[graph.seed % 3]):
        digests.append(routes.digest(routes.check(graph, values, dtype, counts)))
    return digests


def worker(args):
    """Prints a line of JSON for each graph."""
    voxgrad.load(args.library, args.device)
    torch.set_num_threads(1)
    begin = time.monotonic()
    for seed in range(args.seed, args.seed + args.count, args.jobs):
        for kind in args.kinds:
            if time.monotonic() - begin > 60 * args.minutes:
                return
            say({"begin": f"{kind} {seed}"})
            made = generate.make(seed, kind)
            if made:
                say(result_of(*made))


def result_of(graph, values):
    counts = Counter()
    ops = Counter(node.op for node in graph.ops().values())
    try:
        return {"ops": ops, "digests": check(graph, values, counts), "counts": compact(counts)}
    except Failure as failure:
        return {"ops": ops, "failure": str(failure), "graph": str(shrink.shrink(graph, failure, check))}


def compact(counts):
    total = Counter()
    for (kind, _), n in counts.items():
        total[kind] += n
    return total


def say(message):
    print(json.dumps(message), flush=True)


class Process:
    """A worker for the seeds from `seed`, with what it said; it is started again behind a graph that ends it."""

    def __init__(self, args, number, isa):
        self.args, self.seed, self.isa = args, args.seed + number, isa
        self.results, self.failures = {}, []
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()

    def watch(self):
        end = self.args.seed + self.args.count
        while self.seed < end:
            crashed = self.run(end)
            if not crashed:
                return
            self.failures.append((f"{crashed}: the process ended", ""))
            self.seed = int(crashed.split()[1]) + self.args.jobs

    def run(self, end):
        """The graph at which the worker ended early, if one."""
        command = [sys.executable, str(Path(__file__).parent), "--library", self.args.library, "--device", self.args.device,
                   "--worker", "--seed", str(self.seed), "--count", str(end - self.seed), "--jobs", str(self.args.jobs),
                   "--minutes", str(self.args.minutes), "--kinds", *self.args.kinds]
        environment = os.environ | ({"VOXGRAD_CPU_ISA": self.isa} if self.isa else {})
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        name = None
        for line in process.stdout:
            message = json.loads(line)
            name = message.get("begin", name)
            if "failure" in message:
                self.failures.append((f"{name}: {message['failure']}", message["graph"]))
            if "ops" in message:
                self.results[name] = message
        return name if process.wait() and name else None


def main():
    args = arguments()
    if args.worker:
        return worker(args)
    if args.self_test or args.replay:
        voxgrad.load(args.library, args.device)
        return self_test() if args.self_test else replay(args.replay)
    begin = time.monotonic()
    isas = args.isas or [None]
    groups = [[Process(args, number, isa) for number in range(args.jobs)] for isa in isas]
    for process in sum(groups, []):
        process.thread.join()
    failures = [f for process in sum(groups, []) for f in process.failures]
    results = [{name: r for process in group for name, r in process.results.items()} for group in groups]
    for isa, other in zip(isas[1:], results[1:]):
        failures += [(f"{name}: other bits with {isa} than with {isas[0]}", "") for name, r in other.items()
                     if r.get("digests") != results[0].get(name, r).get("digests")]
    return report(args, results[0], failures, time.monotonic() - begin)


def report(args, results, failures, seconds):
    ops, counts = Counter(), Counter()
    for result in results.values():
        ops.update(result["ops"])
        counts.update(result.get("counts", {}))
    for number, (text, graph) in enumerate(failures):
        print(text)
        if graph:
            path = Path(args.out) / f"failure_{number}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(graph)
            print(f"{graph}python3 tests/graphs --library {args.library} --replay {path}")
    print(f"{len(results)} graphs of {ops.total()} nodes, {len(ops)} ops, {seconds:.0f} s, {len(failures)} failures")
    print(", ".join(f"{n} {kind}" for kind, n in counts.most_common()))
    if args.by_op:
        print(", ".join(f"{op} {n}" for op, n in ops.most_common()))
    return 1 if failures or not results else 0


def replay(path):
    graph = parse(Path(path).read_text())
    try:
        check(graph, theirs.run(graph), Counter())
    except Failure as failure:
        print(failure)
        return 1
    print("no difference")
    return 0


def self_test():
    """Each wrong gradient must be found, and the graph shrink to the op; a text must give the same graph."""
    for op in BROKEN:
        for seed in range(1, 2000):
            made = generate.make(seed, "unet" if "norm" in op else "irregular")
            if made and any(node.op == op for node in made[0].ops().values()):
                break
        theirs.WRONG = op
        graph = parse(str(made[0]))
        try:
            check(graph, theirs.run(graph), Counter())
        except Failure as failure:
            small = shrink.shrink(graph, failure, check)
            found = [node.op for node in small.ops().values()]
            print(f"self-test: {op}: {len(graph.ops())} ops, shrunk to {found}")
            if op in found and len(found) <= 3:
                continue
        print(f"self-test: a wrong gradient of {op} was not found, or the graph did not shrink:\n{graph}")
        return 1
    return 0


def arguments():
    a = argparse.ArgumentParser(prog="tests/graphs", description=__doc__)
    a.add_argument("--library", required=True, help="libvoxgrad_opinfo.so")
    a.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="of voxgrad; PyTorch stays on the CPU")
    a.add_argument("--seed", type=int, default=1, help="the first graph's number (1)")
    a.add_argument("--count", type=int, default=10**9, help="numbers to try")
    a.add_argument("--minutes", type=float, default=10**9)
    a.add_argument("--jobs", type=int, default=1, help="processes")
    a.add_argument("--kinds", nargs="+", default=list(generate.KINDS), choices=list(generate.KINDS))
    a.add_argument("--isas", nargs="+", help="instruction sets whose bits must be equal: baseline v3 v4")
    a.add_argument("--by-op", action="store_true", help="print how often each op came")
    a.add_argument("--out", default="build/graphs", help="where graphs that fail go")
    a.add_argument("--replay", help="check the graph in a file")
    a.add_argument("--self-test", action="store_true", help="is a wrong gradient found?")
    a.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = a.parse_args()
    if args.count == 10**9 and args.minutes == 10**9:
        args.count = 100
    return args
