"""One row: voxgrad, PyTorch's plain call and PyTorch's best variant, on the same fresh operands, timed alike."""

import time

from common.passes import set_precision

from .rivals import in_fresh_thread, rivals
from .tensors import LIMITS, Reference, agreement, pytorch_limit, random_tensors

STORAGE = {"bf16": "bfloat16", "f16": "float16"}


class Bench:
    def __init__(self, torch, voxgrad, device, stream, clock, compile_, strict_search=True):
        self.torch, self.voxgrad, self.device, self.stream = torch, voxgrad, device, stream
        self.clock, self.compile, self.strict_search = clock, compile_, strict_search

    def row(self, p, pass_, precision):
        torch, begin = self.torch, time.monotonic()
        row = {"problem": p.number, "pass": pass_, "precision": precision, "shape": p.input_shape,
               "gflop": p.flops() * (3 if pass_ == "step" else 1) / 1e9}
        if self.device == "cuda":
            row["floor_ms"] = p.floor_ms(pass_, precision)
        if pass_ == "step":
            row["least_bytes"] = p.least_step_bytes(precision)
            row["operand_bytes"] = row["least_bytes"] // 2  # x, weight, bias and the output's gradient
        t = random_tensors(torch, p, self.device, getattr(torch, STORAGE.get(precision, "float32")))
        reference = None if pass_ == "step" else Reference(torch, p, pass_, t)
        row["reference_seconds"] = round(time.monotonic() - begin, 1)
        theirs = self._pytorch(row, p, pass_, precision, t, reference)
        row["pytorch_seconds"] = round(time.monotonic() - begin - row["reference_seconds"], 1)
        if self.voxgrad.set_precision(precision):
            self._ours(row, p, pass_, precision, t, reference, theirs)
        else:
            row["ours"] = "not in this build"
        if self.device == "cuda":
            self.voxgrad.empty_cache()
            torch.cuda.empty_cache()
        return row

    def _pytorch(self, row, p, pass_, precision, t, reference):
        """Returns the results of the plain call."""
        set_precision(precision)
        row["rivals_ms"], row["rivals_failed"] = {}, {}
        call, *others = rivals(self.torch, p, pass_, precision, t, self.compile,
                                search=precision != "highest" or self.strict_search)

        def check():
            addresses = []
            for result in call.run():
                result.fill_(float("nan"))
                addresses.append(result.data_ptr())
            del result
            before = self._allocated(reset=True)
            results = call.run()
            row["call_poisoned"] = all(r.data_ptr() in addresses for r in results)
            row["call_peak_bytes"] = self._peak_above(before)
            return results

        results = in_fresh_thread(self.torch, self.stream, call, check)
        self._errors(row, "call", pytorch_limit(precision, pass_), results, reference)
        for rival in (call, *others):
            def checked_ms(rival=rival):
                self._check_rival(rival, pass_, precision, results)
                return self.clock.median_ms(rival.run)

            try:
                row["rivals_ms"][rival.name] = in_fresh_thread(self.torch, self.stream, rival, checked_ms)
            except Exception as error:  # this PyTorch cannot do the variant: the row says so
                if rival is call:
                    raise
                row["rivals_failed"][rival.name] = str(error).splitlines()[0][:200]
        row["call_ms"] = row["rivals_ms"]["call"]
        row["best"] = min(row["rivals_ms"], key=row["rivals_ms"].get)
        row["best_ms"] = row["rivals_ms"][row["best"]]
        return results

    def _check_rival(self, rival, pass_, precision, expected):
        got = rival.run()
        pairs = list(zip(got, expected))
        if rival.turned and pass_ in ("grad-weight", "step"):
            del pairs[-2]
        difference = agreement(self.torch, *zip(*pairs))
        if not difference < 2 * pytorch_limit(precision, pass_):
            raise RuntimeError(f"wrong: relative difference from the call {difference:.1e}")

    def _ours(self, row, p, pass_, precision, t, reference, theirs):
        with self.voxgrad.run(pass_, p, t) as run:
            run()
            run.poison()
            if self.device == "cuda":
                before = self.voxgrad.memory(reset=True)[0]
            run()
            if self.device == "cuda":
                row["ours_peak_bytes"] = self.voxgrad.memory()[1] - before
            results, row["ours_poisoned"] = run.results(self.torch)
            row["result_bytes"] = sum(r.numel() * r.element_size() for r in results)
            self._errors(row, "ours", LIMITS[precision], results, reference)
            row["agreement"] = agreement(self.torch, results, theirs)
            if row["call_correct"]:  # or the difference would say nothing about ours
                row["ours_correct"] &= row["agreement"] < LIMITS[precision] + pytorch_limit(precision, pass_)
            del results
            row["ours_ms"] = self.clock.median_ms(run)
        row["ours"] = "ran"

    def _errors(self, row, who, limit, results, reference):
        correct = all(bool(self.torch.isfinite(r).all()) for r in results)
        if reference is not None:
            relative, largest, rms = reference.errors(results[0])
            row[who + "_error"], row[who + "_scaled_error"], row[who + "_scaled_rms"] = relative, largest, rms
            correct = correct and relative < limit
        row[who + "_correct"] = correct

    def _allocated(self, reset):
        if self.device != "cuda":
            return None
        if reset:
            self.torch.cuda.reset_peak_memory_stats()
        return self.torch.cuda.memory_allocated()

    def _peak_above(self, before):
        return None if before is None else self.torch.cuda.max_memory_allocated() - before
