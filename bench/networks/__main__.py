"""Training steps of whole networks: voxgrad against PyTorch, in one process. bench/README.md says how to run it."""

import argparse
import gc
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from common import library, machine, table  # noqa: E402
from common.machine import names  # noqa: E402

NAMES = ("unet128", "unet64", "decoder", "example04", "nnunet128")
PRECISIONS = ("high", "16", "highest")
CHECK_STEPS = 20
# Relative difference of losses over the steps of a check. The differences of f32 grow with every step; a wrong formula
# shows in f64.
CHECK_LIMITS = {"f64": 1e-9, "highest": 1e-3}
HEAD = ("network", "precision", "ours ms", "ours is", "PyTorch ms", "PyTorch is", "PyTorch/ours", "ours MB", "PyTorch MB",
        "all")


def arguments():
    a = argparse.ArgumentParser(prog="bench/networks", description=__doc__)
    machine.add_arguments(a, seconds=1.0)
    a.add_argument("--networks", type=names(NAMES), default=list(NAMES), help="of " + ",".join(NAMES))
    a.add_argument("--precisions", type=names(PRECISIONS), help="of " + ",".join(PRECISIONS))
    a.add_argument("--size", type=int, help="cells an axis of the output, a power of two (default: the network's)")
    a.add_argument("--narrow", type=int, default=1, help="divides the channels of the U-Nets and the decoder")
    a.add_argument("--batch", type=int, help="(default: the network's)")
    a.add_argument("--budget", type=float, default=float("inf"), help="seconds after which no measurement starts")
    a.add_argument("--compile", action="store_true", help="torch.compile too")
    a.add_argument("--layers", action="store_true", help="layer profiles instead of whole steps")
    a.add_argument("--check", action="store_true", help="compare the losses of 20 steps instead of times")
    args = a.parse_args()
    args.precisions = args.precisions or (["highest"] if args.device == "cpu" else ["high", "16"])
    return args


class Bench:
    def __init__(self, torch, voxgrad, clock, args):
        self.torch, self.voxgrad, self.clock, self.args = torch, voxgrad, clock, args
        self.end = time.monotonic() + args.budget
        self.run = {"meta": machine.meta(torch, args, "networks"), "rows": [], "layers": {}}

    def late(self):
        return time.monotonic() > self.end

    def save(self):
        if self.args.json:
            table.save(self.run, self.args.json)

    def memory(self, work, library_memory):
        """Peak bytes of two steps."""
        work()  # may search for the fastest kernels, with more memory
        if self.args.device != "cuda":
            return None
        self.torch.cuda.empty_cache()
        library_memory(True)
        for _ in range(2):
            work()
        self.torch.cuda.synchronize()
        return library_memory(False)

    def pytorch_memory(self, reset):
        if reset:
            self.torch.cuda.reset_peak_memory_stats()
        return self.torch.cuda.max_memory_allocated()

    def forms(self, precision):
        """PyTorch's forms of a precision, and ours as (name, dtype of parameters, dtype of arithmetic)."""
        from networks.models import Form
        t = self.torch
        kinds = [dict(dtype=t.float32, autocast=True), dict(dtype=t.bfloat16)] if precision == "16" else [{}]
        theirs = [Form(**kind, channels_last=last, compiled=compiled)
                  for compiled in ([False, True] if self.args.compile else [False])
                  for kind in kinds for last in (False, True)]
        if precision != "16":
            return theirs, [("f32", t.float32, t.float32)]
        return theirs, [("bf16", t.bfloat16, t.bfloat16), ("mixed", t.float32, t.bfloat16)]

    def measure(self, network, precision):
        """Prints and keeps one row. PyTorch's and our steps are timed in turns."""
        from common.passes import set_precision
        from networks.models import Trainer, ours
        torch, cuda = self.torch, self.args.device == "cuda"
        set_precision("highest" if precision == "16" else precision)
        self.voxgrad.set_precision("highest" if precision == "16" else precision)
        torch.backends.cudnn.benchmark = True
        x, target = network.data(self.args.device)
        state = {name: value.to(self.args.device) for name, value in network.build().state_dict().items()}
        theirs, our_forms = self.forms(precision)
        works, peaks, failed = {}, {}, {}
        for form in theirs:
            if self.late():
                break
            before = torch.cuda.memory_allocated() if cuda else 0
            try:
                work = Trainer(network, form, state, x, target)
                peak = self.memory(work, self.pytorch_memory)
            except Exception as error:  # this PyTorch cannot do it: the row says so
                failed[form.name] = (str(error).splitlines() or ["?"])[0][:200]
                continue
            works[form.name], peaks[form.name] = work, peak and peak - before
        tasks = {}
        for name, parameters, compute in our_forms:
            before = self.voxgrad.memory()[0] if cuda else 0
            tasks[name] = ours(self.voxgrad, network, state, x, target, parameters, compute)
            peak = self.memory(tasks[name], lambda reset: self.voxgrad.memory(reset)[1])
            peaks["voxgrad " + name] = peak and peak - before
        rivals = list(works)
        times = self.clock.interleaved_ms([*works.values(), *tasks.values()])
        row = {"network": network.name, "precision": precision, "size": network.size, "batch": network.batch,
               "pytorch_ms": dict(zip(rivals, times)), "ours_ms": dict(zip(tasks, times[len(rivals):])),
               "peak_bytes": peaks, "failed": failed}
        for task in tasks.values():
            task.__exit__()
        self.run["rows"].append(row)
        self.save()
        return row

    def check(self, network, precision):
        """Whether the losses of 20 steps agree; prints the largest difference."""
        from common.passes import dtype_of, set_precision
        from networks.models import Form, Trainer, ours
        set_precision("highest")
        self.voxgrad.set_precision("highest")
        dtype = dtype_of(precision)
        x, target = network.data(self.args.device)
        state, losses = network.build().state_dict(), []
        theirs = Trainer(network, Form(dtype), state, x, target)
        with ours(self.voxgrad, network, state, x, target, dtype, dtype) as task:
            for _ in range(CHECK_STEPS):
                expected = theirs()
                task()
                losses.append((task.results([expected])[0].item(), expected.item()))
        worst = max(abs(a - b) / abs(b) for a, b in losses)
        good = worst < CHECK_LIMITS[precision] and losses[-1][0] < losses[0][0]
        print(f"{network.name}, {network.size}^3, batch {network.batch}, {precision}: losses {losses[0][0]:.6f} to "
              f"{losses[-1][0]:.6f}, largest relative difference {worst:.1e} (limit {CHECK_LIMITS[precision]:.0e})"
              + ("" if good else " WRONG"), flush=True)
        self.run["rows"].append({"network": network.name, "precision": precision, "losses": losses, "good": good})
        return good


def cells(row):
    ours, best = (min(row[key], key=row[key].get) if row[key] else None for key in ("ours_ms", "pytorch_ms"))
    ours_ms, best_ms, peaks = row["ours_ms"][ours], row["pytorch_ms"].get(best), row["peak_bytes"]
    their_peaks = [peaks[name] for name in row["pytorch_ms"] if peaks[name]]
    our_peak = peaks["voxgrad " + ours]
    everything = ["voxgrad " + name + " " + table.formatted(ms) for name, ms in row["ours_ms"].items()]
    everything += [name + " " + table.formatted(ms) for name, ms in row["pytorch_ms"].items()]
    everything += [name + " failed: " + why for name, why in row["failed"].items()]
    return (row["network"], row["precision"], table.formatted(ours_ms), ours, table.formatted(best_ms), best or "-",
            table.formatted(best_ms and best_ms / ours_ms, ".2f"), table.formatted(our_peak and our_peak / 1e6, ".0f"),
            table.formatted(min(their_peaks) / 1e6 if their_peaks else None, ".0f"), "; ".join(everything))


def main():
    args = arguments()
    try:
        import torch
    except ModuleNotFoundError:
        print("bench/networks: this Python has no PyTorch", file=sys.stderr)
        sys.exit(77)  # CTest's sign for a skipped test
    from common.clock import Clock
    from networks import layers
    from networks.models import NETWORKS

    voxgrad = library.Library(library.find(args.library))
    stream = machine.set_up(torch, voxgrad, args)
    clock = Clock(torch, args.device, stream, repeats=20, seconds=args.seconds,
                  **({"flush_bytes": 1 << 20} if args.size else {}))  # a try at small sizes takes little time
    bench, right, rows = Bench(torch, voxgrad, clock, args), True, []
    print("\n".join(table.describe(bench.run["meta"], args.markdown)), flush=True)
    for network in NETWORKS:
        if network.name not in args.networks:
            continue
        network = network.resized(args.size) if args.size else network
        network = network.narrowed(args.narrow)
        network.batch = args.batch or network.batch
        for precision in ["f64", "highest"] if args.check else args.precisions:
            if bench.late():
                print(f"{network.name}, {precision}: not run", flush=True)
            elif args.check:
                right &= bench.check(network, precision)
            elif args.layers:
                actual = "bf16" if precision == "16" else precision
                voxgrad.set_precision(actual)
                layers.set_precision(actual)
                torch.backends.cudnn.benchmark = True
                bench.run["layers"][f"{network.name}, {actual}"] = layers.profile(
                    voxgrad, clock, network, actual, args.device, args.markdown)
            else:
                rows.append(cells(bench.measure(network, precision)))
                print(": ".join(("measured", " | ".join(rows[-1]))), file=sys.stderr, flush=True)
            bench.save()
            gc.collect()
            if args.device == "cuda":
                voxgrad.empty_cache()
                torch.cuda.empty_cache()
    if rows:
        print("\n" + "\n".join(table.layout([HEAD, *rows], args.markdown)))
    if not right:
        sys.exit("bench/networks: losses differ")


if __name__ == "__main__":
    main()
