"""Training steps of whole networks: voxgrad against PyTorch, in one process. bench/README.md says how to run it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from common import table  # noqa: E402
from common.machine import names  # noqa: E402
from common.passes import dtype_of  # noqa: E402
from common.pytorch import torch  # noqa: E402
from common.run import Run, parser, reason  # noqa: E402
from networks import layers  # noqa: E402
from networks.models import NETWORKS, Form, Trainer, ours  # noqa: E402

NAMES = [network.name for network in NETWORKS]
PRECISIONS = ("high", "16", "highest")
CHECK_STEPS = 20
# Relative difference of losses over the steps of a check. A wrong formula shows in f64. In f32 rounding differences
# grow with every step, in some networks chaotically; there PyTorch's own difference from f64 is the measure. The mixed
# form is compared with PyTorch in f32.
CHECK_LIMITS = {"f64": 1e-9, "highest": 1e-3, "mixed": 2e-2}
HEAD = ("network", "precision", "ours ms", "ours is", "PyTorch ms", "PyTorch is", "PyTorch/ours", "ours MB",
        "PyTorch MB", "all")


def arguments():
    a = parser("networks", __doc__, 1.0, PRECISIONS)
    a.add_argument("--networks", type=names(NAMES), default=NAMES, help="of " + ",".join(NAMES))
    a.add_argument("--size", type=int, help="cells an axis of the output, a power of two (default: the network's)")
    a.add_argument("--narrow", type=int, default=1, help="divides the channels of the U-Nets and the decoder")
    a.add_argument("--batch", type=int, help="(default: the network's)")
    a.add_argument("--compile", action="store_true", help="torch.compile too")
    a.add_argument("--layers", action="store_true", help="layer profiles instead of whole steps")
    a.add_argument("--check", action="store_true", help="compare the losses of 20 steps instead of times")
    args = a.parse_args()
    default = list(CHECK_LIMITS) if args.check else ["highest"] if args.device == "cpu" else ["high", "16"]
    args.precisions = default if args.check else args.precisions or default
    return args


def peak_bytes(run, work, peak):
    """The peak memory of two steps, or None on the CPU. `peak(reset)` returns the library's peak, and restarts it if
    `reset`."""
    work()  # may search for the fastest kernels, with more memory
    if not run.cuda:
        return None
    torch.cuda.empty_cache()
    peak(True)
    for _ in range(2):
        work()
    torch.cuda.synchronize()
    return peak(False)


def pytorch_peak(reset):
    if reset:
        torch.cuda.reset_peak_memory_stats()
    return torch.cuda.max_memory_allocated()


def forms(precision, compile):
    """PyTorch's forms of a precision, and ours as (name, dtype of parameters, dtype of arithmetic)."""
    f32, bf16 = torch.float32, torch.bfloat16
    kinds = [dict(dtype=f32, autocast=True), dict(dtype=bf16)] if precision == "16" else [{}]
    theirs = [Form(**kind, channels_last=last, compiled=compiled)
              for compiled in ([False, True] if compile else [False]) for kind in kinds for last in (False, True)]
    return theirs, [("bf16", bf16, bf16), ("mixed", f32, bf16)] if precision == "16" else [("f32", f32, f32)]


def measure(run, network, precision):
    """Adds a row. PyTorch's and our steps are timed in turns."""
    run.set_precision("highest" if precision == "16" else precision)
    x, target = network.data(run.args.device)
    state = {name: value.to(run.args.device) for name, value in network.build().state_dict().items()}
    theirs, our_forms = forms(precision, run.args.compile)
    works, peaks, failed = {}, {}, {}
    for form in theirs:
        if run.late():
            break
        before = torch.cuda.memory_allocated() if run.cuda else 0
        try:
            work = Trainer(network, form, state, x, target)
            peak = peak_bytes(run, work, pytorch_peak)
        except Exception as error:  # this PyTorch cannot do it: the row says so
            failed[form.name] = reason(error)
            continue
        works[form.name], peaks[form.name] = work, peak and peak - before
    tasks = {}
    for name, parameters, compute in our_forms:
        before = run.voxgrad.memory()[0] if run.cuda else 0
        tasks[name] = ours(run.voxgrad, network, state, x, target, parameters, compute)
        peak = peak_bytes(run, tasks[name], lambda reset: run.voxgrad.memory(reset)[1])
        peaks["voxgrad " + name] = peak and peak - before
    rivals = list(works)
    times = run.clock.interleaved_ms([*works.values(), *tasks.values()])
    row = {"network": network.name, "precision": precision, "size": network.size, "batch": network.batch,
           "pytorch_ms": dict(zip(rivals, times)), "ours_ms": dict(zip(tasks, times[len(rivals):])),
           "peak_bytes": peaks, "failed": failed}
    for task in tasks.values():
        task.__exit__()
    run.add(row, line(row))


def line(row):
    """A row as a line of the table."""
    (ours, ours_ms), (best, best_ms) = table.fastest(row["ours_ms"]), table.fastest(row["pytorch_ms"])
    peaks = row["peak_bytes"]
    their_peaks = [peaks[name] for name in row["pytorch_ms"] if peaks[name]]

    def megabytes(count):
        return table.formatted(count and count / 1e6, ".0f")

    times = {**{"voxgrad " + name: ms for name, ms in row["ours_ms"].items()}, **row["pytorch_ms"]}
    every = [f"{name}: {table.formatted(ms)} ms" + (f", {megabytes(peaks[name])} MB" if peaks[name] else "")
             for name, ms in times.items()]
    every += [f"{name} failed: {why}" for name, why in row["failed"].items()]
    return (row["network"], row["precision"], table.formatted(ours_ms), ours, table.formatted(best_ms), best,
            table.formatted(best_ms and best_ms / ours_ms, ".2f"), megabytes(peaks["voxgrad " + ours]),
            megabytes(min(their_peaks, default=None)), "; ".join(every))


def check(run, network, precision):
    """Compares the losses of 20 steps, and prints the largest difference."""
    run.set_precision("highest")
    dtype = dtype_of(precision)
    x, target = network.data(run.args.device)
    state, losses = network.build().state_dict(), []
    theirs = Trainer(network, Form(dtype), state, x, target)
    exact = Trainer(network, Form(torch.float64), state, x, target) if precision == "highest" else None
    compute = torch.bfloat16 if precision == "mixed" else dtype
    with ours(run.voxgrad, network, state, x, target, dtype, compute) as task:
        for _ in range(CHECK_STEPS):
            expected = theirs()
            task()
            losses.append((task.results([expected])[0].item(), expected.item(), exact().item() if exact else None))
    worst = max(abs(a - b) / abs(b) for a, b, _ in losses)
    limit = CHECK_LIMITS[precision]
    if exact:
        limit = max(limit, 2 * max(abs(b - c) / abs(c) for _, b, c in losses))
    wrong = not (worst < limit and losses[-1][0] < losses[0][0])
    print(f"{network.name}, {network.size}^3, batch {network.batch}, {precision}: losses {losses[0][0]:.6f} to "
          f"{losses[-1][0]:.6f}, largest relative difference {worst:.1e} (limit {limit:.1e})"
          + " WRONG" * wrong, flush=True)
    run.results["rows"].append({"network": network.name, "precision": precision, "losses": losses, "wrong": wrong})


def profile(run, network, precision):
    actual = "bf16" if precision == "16" else precision
    run.set_precision(actual)
    rows = layers.profile(run.voxgrad, run.clock, network, actual, run.args.device, run.args.markdown)
    run.results["rows"].append({"network": network.name, "precision": actual, "layers": rows})


def main():
    args = arguments()
    # A try at a small size takes little time.
    run = Run("networks", args, **({"flush_bytes": 1 << 20} if args.size else {}))
    work = check if args.check else profile if args.layers else measure
    for network in NETWORKS:
        if network.name not in args.networks:
            continue
        network = (network.resized(args.size) if args.size else network).narrowed(args.narrow)
        network.batch = args.batch or network.batch
        for precision in args.precisions:
            if run.late():
                run.skip(network.name, precision)
                continue
            work(run, network, precision)
            run.save()
            run.free_memory()
    run.print_table(HEAD)
    run.fail_if_wrong()


if __name__ == "__main__":
    main()
