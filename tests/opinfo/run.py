"""Runs every op's cases in a process of its own, with a time limit, and reports."""

import argparse
import mmap
import os
import pickle
import select
import signal
import sys
import time
import traceback
from collections import Counter

import torch

import differences
import huge
import ops
import oracle
import programs
import table
import voxgrad
from checks import Disagreement, PyTorchRefuses, check, check_error
from oracle import FLOATING, LAYOUTS, WHOLE
from voxgrad import Inexpressible

PROGRAMS = 4000       # random programs of a full run
PROGRAMS_A_TASK = 500


class Case:
    """One sample in one dtype and layout; dtype None: one that PyTorch refuses, `layout` says why."""

    def __init__(self, entry, reference, sample, dtype, layout, number):
        self.entry, self.reference, self.sample = entry, reference, sample
        self.dtype, self.layout, self.number = dtype, layout, number

    def __str__(self):
        where = "error_inputs" if self.dtype is None else f"{str(self.dtype).removeprefix('torch.')}, {self.layout}"
        return f"{self.entry.name}: {self.sample.source} {self.number} ({where}): {self.sample}"

    def run(self, counts):
        oracle.seed(f"{self.entry.name} {self.dtype} {self.layout} {self.number}")
        if self.dtype is None:
            return check_error(self.entry, self.sample, self.layout, counts)
        if self.sample.source == "huge":
            return huge.check(self.entry, self.sample, counts)
        self.sample = oracle.prepare(self.sample, self.dtype, self.layout, self.number)
        return check(self.entry, self.reference, self.sample, counts)


class Task:
    """What one process does: `cases(databases)` makes a list of cases. `share` of them are run by --share."""

    def __init__(self, name, limit, share, cases):
        self.name, self.limit, self.share, self.cases = name, limit, share, cases


def cases_of(entry, databases):
    if not oracle.has(entry, databases):
        raise PyTorchRefuses(f"no samples of {entry.of}")
    reference = entry.reference or databases[0][entry.of].op
    for dtype in FLOATING + WHOLE:
        sources = list(oracle.samples(entry, databases, dtype))
        sources += oracle.special_samples(entry, databases, dtype)
        for number, sample in enumerate(sources):
            for layout in LAYOUTS if sample.source == "sample" and sample.tensors() else LAYOUTS[:1]:
                yield Case(entry, reference, sample, dtype, layout, number)
    for number, (sample, says) in enumerate(oracle.error_samples(entry, databases)):
        yield Case(entry, reference, sample, None, says, number)


def tasks(entries, arguments):
    for entry in entries:
        yield Task(entry.name, arguments.limit, 60, lambda databases, entry=entry: list(cases_of(entry, databases)))
    for entry in entries:
        yield Task("huge tensors: " + entry.name, huge.LIMIT_S, 1, lambda databases, entry=entry: [
            Case(entry, None, s, torch.float32, "expanded", i)
            for i, s in enumerate(huge.samples(entry, databases))])
    for first in range(0, PROGRAMS, PROGRAMS_A_TASK):
        yield Task("random programs", arguments.limit, 20, lambda databases, first=first: [
            programs.Program(i, (torch.float64, torch.float32)[i % 2], databases)
            for i in range(first, first + PROGRAMS_A_TASK)])


class Report:
    """The outcome of one task."""

    def __init__(self, name):
        self.name, self.counts, self.differences, self.failures = name, Counter(), Counter(), []


def run_task(task, databases, arguments, note):
    report = Report(task.name)
    try:
        cases = task.cases(databases)
    except PyTorchRefuses as reason:
        print(f"{task.name}: {reason} in this PyTorch", flush=True)
        report.counts["not in this PyTorch"] += 1
        return report
    if arguments.share:  # evenly spread
        cases = cases[::max(1, len(cases) // task.share)]
    for case in cases:
        note(case)
        try:
            case.run(report.counts)
        except Inexpressible:
            report.counts["not expressible"] += 1
        except PyTorchRefuses:
            report.counts["PyTorch refuses"] += 1
        except Disagreement as disagreement:
            rule = differences.covering(case.entry, case.sample, disagreement) if isinstance(case, Case) else None
            if rule:
                report.differences[rule.title] += 1
            else:
                report.failures.append(f"{case}\n    {disagreement.kind}: {disagreement.message}")
    return report


class Child:
    """A task in a forked process; it writes what it does into shared memory, and its report into a pipe."""

    def __init__(self, task, databases, arguments):
        self.task, self.began = task, time.monotonic()
        self.doing = mmap.mmap(-1, 4096)
        self.pipe, write = os.pipe()
        self.output = b""
        self.pid = os.fork()
        if self.pid:
            os.close(write)
            return
        status = 1
        try:
            voxgrad.load(arguments.library, arguments.device)
            voxgrad.set_threads(2)
            report = run_task(task, databases, arguments, self.note)
            with os.fdopen(write, "wb") as out:
                pickle.dump(report, out)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(status)

    def note(self, case):
        text = str(case).encode()[:4095]
        self.doing[:len(text) + 1] = text + b"\0"

    def late(self):
        return time.monotonic() - self.began > self.task.limit

    def ended(self):
        """Reads on; whether the child has closed its end."""
        data = os.read(self.pipe, 1 << 16)
        self.output += data
        return not data

    def report(self):
        if self.late():
            os.kill(self.pid, signal.SIGKILL)
        os.close(self.pipe)
        _, status = os.waitpid(self.pid, 0)
        if status == 0:
            return pickle.loads(self.output)
        report = Report(self.task.name)
        how = f"took more than {self.task.limit} s" if self.late() else f"ended with wait status {status}"
        last = self.doing[:].split(b"\0")[0].decode(errors="replace")
        report.failures.append(f"{last or self.task.name}\n    crash: the process {how} at this sample")
        return report


def show(report, arguments):
    if report.failures or not arguments.share:
        print(f"{report.name}: {dict(report.counts)}, differences {sum(report.differences.values())}, "
              f"failures {len(report.failures)}", flush=True)
    for failure in report.failures[:arguments.show]:
        print("  FAILED " + failure, flush=True)


def run_all(waiting, databases, arguments):
    waiting, running, reports = list(waiting)[::-1], [], []
    while waiting or running:
        while waiting and len(running) < arguments.jobs:
            running.append(Child(waiting.pop(), databases, arguments))
        ready, _, _ = select.select([child.pipe for child in running], [], [], 1)
        for child in list(running):
            if child.late() or (child.pipe in ready and child.ended()):
                running.remove(child)
                reports.append(child.report())
                show(reports[-1], arguments)
    return reports


def arguments_of(argv):
    parser = argparse.ArgumentParser(prog="opinfo", description=__doc__)
    parser.add_argument("--library", required=True, help="the shim that CMake builds (libvoxgrad_opinfo.so)")
    parser.add_argument("--share", action="store_true", help="a fixed share of each op's cases")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--only", default="", help="ops and other tasks whose name contains this")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="processes at a time")
    parser.add_argument("--limit", type=float, default=600, help="seconds that one op may take")
    parser.add_argument("--show", type=int, default=5, help="failures to show of each op")
    parser.add_argument("--table", metavar="FILE", help="write the differences and the table of ops to this file")
    return parser.parse_args(argv)


def main():
    arguments = arguments_of(sys.argv[1:])
    torch.set_num_threads(1)  # a forked process has no thread pool
    databases = oracle.import_databases()
    ops.use_cuda(arguments.device == "cuda")
    wanted = [t for t in tasks(ops.ENTRIES, arguments) if arguments.only in t.name]
    reports = run_all(wanted, databases, arguments)

    total = table.total(reports)
    print(f"opinfo, PyTorch {torch.__version__} on {arguments.device}: " +
          ", ".join(f"{n} {what}" for what, n in total.items()))
    if arguments.table and not total["failures"]:
        table.write(arguments.table, reports, arguments.device)
    return 1 if total["failures"] else 0
