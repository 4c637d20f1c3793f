"""One row: voxgrad, PyTorch's plain call and PyTorch's best variant, on the same fresh operands, timed alike."""

import time

from common.library import conv_options
from common.passes import dtype_of, set_precision
from common.pytorch import torch
from common.run import reason

from .rivals import in_fresh_thread, rivals
from .tensors import LIMITS, Reference, agreement, pytorch_limit, random_tensors

# Of voxgrad's passes: the task's name, the operands beside x, weight and gy, and those that require grad. The results
# are the gradients of these, or y; or y and all gradients.
TASKS = {"forward": ("forward", "", ""), "grad-input": ("backward", "", "x"),
         "grad-weight": ("backward", "bias", "weight bias"), "step": ("step", "bias", "x weight bias")}


def measured_row(run, p, pass_, precision):
    begin = time.monotonic()
    row = {"problem": p.number, "pass": pass_, "precision": precision, "shape": p.input_shape,
           "gflop": p.flops() * (3 if pass_ == "step" else 1) / 1e9}
    if run.cuda:
        row["floor_ms"] = p.floor_ms(pass_, precision)
    if pass_ == "step":
        row["least_bytes"] = p.least_step_bytes(precision)
        row["operand_bytes"] = row["least_bytes"] // 2  # x, weight, bias and the output's gradient
    measurement = Measurement(run, p, pass_, precision, row)
    row["reference_seconds"] = round(time.monotonic() - begin, 1)
    theirs = measurement.pytorch()
    row["pytorch_seconds"] = round(time.monotonic() - begin - row["reference_seconds"], 1)
    run.voxgrad.set_precision(precision)
    measurement.ours(theirs)
    del measurement, theirs
    run.free_memory()
    return row


class Measurement:
    """Fills a row."""

    def __init__(self, run, p, pass_, precision, row):
        self.run, self.p, self.pass_, self.precision, self.row = run, p, pass_, precision, row
        self.tensors = random_tensors(p, run.args.device, dtype_of(precision))
        self.reference = None if pass_ == "step" else Reference(p, pass_, self.tensors)

    def pytorch(self):
        """Returns the results of the plain call."""
        set_precision(self.precision)
        row, stream = self.row, self.run.stream
        row["rivals_ms"], row["rivals_failed"] = {}, {}
        search = self.precision != "highest" or not self.run.args.no_strict_search
        call, *others = rivals(self.p, self.pass_, self.precision, self.tensors, self.run.args.compile, search)
        results = in_fresh_thread(stream, call, lambda: self._results_over_poison(call))
        self._errors("call", pytorch_limit(self.precision, self.pass_), results)
        for rival in (call, *others):
            def checked_ms(rival=rival):
                self._check_rival(rival, results)
                return self.run.clock.median_ms(rival.run)

            try:
                row["rivals_ms"][rival.name] = in_fresh_thread(stream, rival, checked_ms)
            except Exception as error:  # this PyTorch cannot do the variant: the row says so
                if rival is call:
                    raise
                row["rivals_failed"][rival.name] = reason(error)
        row["call_ms"] = row["rivals_ms"]["call"]
        row["best"] = min(row["rivals_ms"], key=row["rivals_ms"].get)
        row["best_ms"] = row["rivals_ms"][row["best"]]
        return results

    def _results_over_poison(self, call):
        """The call's results, in memory that held NaN before. Notes whether it did, and the peak of memory."""
        addresses = []
        for result in call.run():
            result.fill_(float("nan"))
            addresses.append(result.data_ptr())
        del result
        if self.run.cuda:
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
        results = call.run()
        self.row["call_poisoned"] = all(r.data_ptr() in addresses for r in results)
        self.row["call_peak_bytes"] = torch.cuda.max_memory_allocated() - before if self.run.cuda else None
        return results

    def _check_rival(self, rival, expected):
        pairs = list(zip(rival.run(), expected))
        if rival.turned and self.pass_ in ("grad-weight", "step"):
            del pairs[-2]
        difference = agreement(*zip(*pairs))
        if not difference < 2 * pytorch_limit(self.precision, self.pass_):
            raise RuntimeError(f"wrong: relative difference from the call {difference:.1e}")

    def ours(self, theirs):
        row, voxgrad = self.row, self.run.voxgrad
        with self._task() as task:
            task()
            addresses = task.poison(len(theirs))
            before = voxgrad.memory(reset=True)[0] if self.run.cuda else None
            task()
            if self.run.cuda:
                row["ours_peak_bytes"] = voxgrad.memory()[1] - before
            row["ours_poisoned"] = all(a in addresses for a in task.addresses(len(theirs)))
            results = task.results(theirs)
            row["result_bytes"] = sum(r.numel() * r.element_size() for r in results)
            self._errors("ours", LIMITS[self.precision], results)
            row["agreement"] = agreement(results, theirs)
            if row["call_correct"]:  # or the difference would say nothing about ours
                limit = LIMITS[self.precision] + pytorch_limit(self.precision, self.pass_)
                row["ours_correct"] &= row["agreement"] < limit
            del results
            row["ours_ms"] = self.run.clock.median_ms(task)
        row["ours"] = "ran"

    def _task(self):
        name, more, wanted = TASKS[self.pass_]
        p, operands = self.p, []
        for operand in ["x", "weight", *more.split(), *([] if name == "forward" else ["gy"])]:
            tensor = getattr(self.tensors, operand).detach()
            operands.append(tensor.requires_grad_(operand in wanted.split()))
        return self.run.voxgrad.task("conv", "conv_transpose3d", name, operands,
                                     conv_options(p.stride, p.padding, p.dilation, p.groups, p.output_padding))

    def _errors(self, who, limit, results):
        correct = all(bool(torch.isfinite(r).all()) for r in results)
        if self.reference is not None:
            relative, largest, rms = self.reference.errors(results[0])
            self.row |= {who + "_error": relative, who + "_scaled_error": largest, who + "_scaled_rms": rms}
            correct = correct and relative < limit
        self.row[who + "_correct"] = correct
