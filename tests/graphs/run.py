"""Makes graphs by number, checks them in several processes, shrinks what fails, and reports."""

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

import compiled
import generate
import judge
import ours
import precision
import routes
import shrink
import theirs
import voxgrad
from graph import parse
from judge import Failure

LOW = (torch.float32, torch.bfloat16, torch.float16)  # by the graph's number


def check(graph, values, counts):
    """Throws Failure. Returns digests of what the routes computed, which another instruction set must equal."""
    judge.check(graph, values, counts)
    if compiled.backend:
        compiled.check(graph, values, counts)
    if graph.kind == "written":  # its leaves are not the same in a second run
        return []
    low = LOW[graph.seed % 3]
    digests = [routes.digest(routes.check(graph, values, dtype, counts)) for dtype in (torch.float64, low)]
    precision.check(graph, values, low, counts)
    # Where convolutions use a fused a * b + c is up to the compiler (Note [Instruction sets] in ops/cpu/isa.h).
    return [] if any(".conv" in node.op for node in graph.ops().values()) else digests


def load(args):
    voxgrad.load(args.library, args.device)
    if args.package:
        compiled.load(args.package)


def worker(args):
    """Prints a line of JSON for each graph."""
    load(args)
    torch.set_num_threads(1)
    begin = time.monotonic()
    for seed in range(args.seed, args.seed + args.count, args.jobs):
        for kind in args.kinds:
            if time.monotonic() - begin > 60 * args.minutes:
                return
            say({"begin": f"{kind} {seed}"})
            made = generate.make(seed, kind)
            result = result_of(*made) if made else {}
            say(result)
            if args.first and "failure" in result:
                return


def result_of(graph, values):
    counts, ops = Counter(), Counter(node.op for node in graph.ops().values())
    try:
        digests = check(graph, values, counts)
    except Failure as failure:
        return {"ops": ops, "failure": str(failure), "graph": str(shrink.shrink(graph, failure, check))}
    total = Counter()
    for (kind, _), n in counts.items():
        total[kind] += n
    return {"ops": ops, "digests": digests, "counts": total}


def say(message):
    print(json.dumps(message), flush=True)


def watch(args, number=0, environment=None):
    """What a worker says of the seeds from `number`, by graph, and its failures, (text, graph). A worker is started again
    behind a graph that ends it."""
    results, failures = {}, []
    seed, end = args.seed + number, args.seed + args.count
    while seed < end:
        command = [sys.executable, str(Path(__file__).parent), "--worker", "--library", args.library, "--device", args.device,
                   "--seed", str(seed), "--count", str(end - seed), "--jobs", str(args.jobs), "--minutes", str(args.minutes),
                   *(["--first"] if args.first else []), *(["--package", args.package] if args.package else []),
                   "--kinds", *args.kinds]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | (environment or {}))
        name = None
        for message in map(json.loads, process.stdout):
            name = message.get("begin", name)
            if "failure" in message:
                failures.append((f"{name}: {message['failure']}", message["graph"]))
                print(*failures[-1], sep="\n", flush=True)
            if "ops" in message:
                results[name] = message
        if process.wait() == 0 or not name:
            break
        failures.append((f"{name}: the process ended", ""))
        print(failures[-1][0], flush=True)
        if args.first:
            break
        seed = int(name.split()[1]) + args.jobs
    return results, failures


def main():
    args = arguments()
    if args.worker:
        return worker(args)
    if args.mutants:
        return mutants(args)
    if args.self_test or args.replay:
        load(args)
        return self_test() if args.self_test else replay(args.replay)
    begin, failures, by_isa = time.monotonic(), [], {}
    isas = args.isas or [""]
    with ThreadPoolExecutor(args.jobs * len(isas)) as pool:
        for isa, number in [(isa, number) for isa in isas for number in range(args.jobs)]:
            found = pool.submit(watch, args, number, {"VOXGRAD_CPU_ISA": isa} if isa else {})
            by_isa.setdefault(isa, []).append(found)
    results = {}
    for isa in isas:
        results[isa] = {}
        for found in by_isa[isa]:
            results[isa].update(found.result()[0])
            failures += found.result()[1]
    first = results[isas[0]]
    for isa in isas[1:]:
        failures += [(f"{name}: other bits with {isa} than with {isas[0]}", "") for name, r in results[isa].items()
                     if r.get("digests") != first.get(name, r).get("digests")]
    return report(args, first, failures, time.monotonic() - begin)


def report(args, results, failures, seconds):
    ops, counts = Counter(), Counter()
    for result in results.values():
        ops.update(result["ops"])
        counts.update(result.get("counts", {}))
    for number, (text, graph) in enumerate(failures):
        print(text)
        if graph:  # a process that ended leaves none: make it again by its kind and --seed
            path = Path(args.out) / f"failure_{number}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(graph)
            print(f"  python3 tests/graphs --library {args.library} --replay {path}")
    print(f"{len(results)} graphs of {ops.total()} nodes, {len(ops)} ops, {seconds:.0f} s, {len(failures)} failures")
    print(", ".join(f"{n} {kind}" for kind, n in counts.most_common()))
    if args.by_op:
        print(", ".join(f"{op} {n}" for op, n in ops.most_common()))
    missed = args.package and not counts["compiled: ops of voxgrad"]
    return 1 if failures or not results or missed else 0


def replay(path):
    try:
        graph = parse(Path(path).read_text())
    except (IndexError, KeyError, ValueError) as error:
        sys.exit(f"tests/graphs: {path} is no text of a graph ({type(error).__name__}: {error})")
    try:
        check(graph, theirs.run(graph), Counter())
    except Failure as failure:
        print(failure)
        return 1
    print("no difference")
    return 0


def self_test():
    """Each wrong gradient must be found, and the graph shrink to the op; a text must give the same graph. PyTorch's gets
    the wrong sign, voxgrad's in f32 and f16 is 1 % too large. `first` is where small graphs with the op come soon."""
    for side, op, low, first in ((theirs, "tanh", None, 1), (theirs, "cumsum", None, 98), (ours, "nn.functional.conv2d", 0, 90),
                                 (ours, "nn.functional.gelu", 2, 23)):
        for seed in range(first, first + 300, 1 if low is None else 3):
            made = generate.make(seed, "irregular")
            if made and len(made[0].ops()) <= 12 and any(node.op == op for node in made[0].ops().values()):
                side.WRONG = op
                found = shrunk(parse(str(made[0])))
                side.WRONG = None
                if op in found and len(found) <= 3:
                    print(f"self-test: {op}: graph {seed} of {len(made[0].ops())} ops, shrunk to {found}")
                    break
        else:
            print(f"self-test: a wrong gradient of {op} was not found, or no graph did shrink")
            return 1
    return 0


def shrunk(graph):
    """The ops of the graph that is left, if this one fails."""
    try:
        check(graph, theirs.run(graph), Counter())
    except Failure as failure:
        return [node.op for node in shrink.shrink(graph, failure, check).ops().values()]
    return []


def mutants(args):
    """Places of voxgrad made wrong, by tests/mutate; how many graphs it takes to find each, and how small the last gets."""
    sys.path.append(str(Path(__file__).parent.parent / "mutate"))
    import mutate
    listed = mutate.read_mutants(Path(__file__).parent / "mutants.txt")
    mutate.build(listed, "voxgrad_opinfo")
    args.library, args.first, survivors = str(mutate.BUILD / "tests" / "libvoxgrad_opinfo.so"), True, 0
    for mutant in [None, *listed]:
        args.kinds = mutant.note.split() if mutant else list(generate.KINDS)
        results, failures = watch(args, 0, {"VOXGRAD_MUTANT": str(mutant.number if mutant else 0)})
        text, graph = failures[0] if failures else ("", "")
        survivors += bool(failures) != bool(mutant)
        size = f"{len(parse(graph).ops())} ops of {sum(results[text.split(':')[0]]['ops'].values())}, " if graph else ""
        print(f"{mutant or 'no mutant'}: {len(results)} graphs, {size}{text or 'NO FAILURE'}", flush=True)
    return survivors > 0


def arguments():
    a = argparse.ArgumentParser(prog="tests/graphs", description=__doc__)
    a.add_argument("--library", required=True, help="libvoxgrad_opinfo.so")
    a.add_argument("--package", help="libvoxgrad_python.so: also the graph compiled by the package's backend (PyTorch 2.5)")
    a.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="of voxgrad; PyTorch stays on the CPU")
    a.add_argument("--seed", type=int, default=1, help="the first graph's number (1)")
    a.add_argument("--count", type=int, default=10**9, help="numbers to try (100, if no --minutes)")
    a.add_argument("--minutes", type=float, default=10**9)
    a.add_argument("--jobs", type=int, default=1, help="processes")
    a.add_argument("--kinds", nargs="+", default=list(generate.KINDS), choices=list(generate.KINDS))
    a.add_argument("--isas", nargs="+", help="instruction sets whose bits must be equal: v3 v4")
    a.add_argument("--by-op", action="store_true", help="print how often each op came")
    a.add_argument("--out", default="build/graphs", help="where graphs that fail go")
    a.add_argument("--replay", help="check the graph in a file")
    a.add_argument("--self-test", action="store_true", help="is a wrong gradient found?")
    a.add_argument("--mutants", action="store_true", help="are the wrong places of mutants.txt found?")
    for internal in ("--worker", "--first"):
        a.add_argument(internal, action="store_true", help=argparse.SUPPRESS)
    args = a.parse_args()
    for path in filter(None, (args.library, args.package, args.replay)):
        if not Path(path).is_file():
            a.error(f"there is no file {path}")
    if args.count < 1 or args.jobs < 1 or not args.minutes > 0:
        a.error("needs --count >= 1, --jobs >= 1 and --minutes > 0")
    if args.count == 10**9 and args.minutes == 10**9:
        args.count = 100
    return args
