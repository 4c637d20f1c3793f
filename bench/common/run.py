"""A run of a benchmark against PyTorch: both libraries, and the rows that it measures."""

import gc
import sys
import time

from . import machine, table
from .clock import FLUSH_BYTES, Clock
from .library import Library, find
from .machine import parser  # noqa: F401
from .passes import set_precision
from .pytorch import torch


class Run:
    def __init__(self, program, args, repeats=20, flush_bytes=FLUSH_BYTES, announce=True):
        self.args, self.program, self.cuda = args, program, args.device == "cuda"
        self.voxgrad = Library(find(args.library))
        self.stream = machine.set_up(torch, self.voxgrad, args)
        self.clock = Clock(torch, args.device, self.stream, repeats, args.seconds, flush_bytes)
        torch.backends.cudnn.benchmark = True
        self._end = time.monotonic() + args.budget
        self.results = {"meta": machine.meta(torch, args, program), "rows": []}
        self._lines = []
        if announce:
            print("\n".join(table.describe(self.results["meta"], args.markdown)), flush=True)

    def late(self):
        return time.monotonic() > self._end

    def set_precision(self, precision):
        """Sets the precision of f32 in both libraries."""
        set_precision(precision)
        self.voxgrad.set_precision(precision)

    def add(self, row, line):
        """Keeps a row: its numbers for the JSON file, and its line of the table."""
        self.results["rows"].append(row)
        self._lines.append(line)
        print("measured: " + " | ".join(line), file=sys.stderr, flush=True)
        self.save()

    def skip(self, *line):
        """Adds a line to the table for something that there was no time to measure."""
        self._lines.append((*line, "not run"))

    def save(self):
        if self.args.json:
            table.save(self.results, self.args.json)

    def free_memory(self):
        gc.collect()
        if self.cuda:
            self.voxgrad.empty_cache()
            torch.cuda.empty_cache()

    def print_table(self, head):
        if not self._lines:
            return
        rows = [head, *(line + ("",) * (len(head) - len(line)) for line in self._lines)]
        print("\n" + "\n".join(table.layout(rows, self.args.markdown)), flush=True)

    def fail_if_wrong(self):
        """Exits with an error if a row says that its results are wrong."""
        wrong = sum(row.get("wrong", False) for row in self.results["rows"])
        if wrong:
            sys.exit(f"bench/{self.program}: {wrong} results are WRONG")


def reason(error):
    """The first line of an error, for the row of what PyTorch could not do."""
    return (str(error).splitlines() or ["?"])[0][:200]
