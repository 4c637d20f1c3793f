"""Runs every entry in a process of its own, with a time limit, and reports."""

import argparse
import mmap
import os
import pickle
import select
import signal
import sys
import time
from collections import Counter

import torch

import differences
import ops
import oracle
import voxgrad
from checks import Disagreement, PyTorchRefuses, check, check_error
from oracle import FLOATING, LAYOUTS, WHOLE
from voxgrad import Inexpressible


class Report:
    """What became of one entry."""

    def __init__(self, name):
        self.name, self.counts, self.differences, self.failures = name, Counter(), Counter(), []


def cases(entry, databases, device):
    """All cases of an entry, as (description, function of counts)."""
    reference = entry.reference or databases[0][entry.of].op
    for dtype in FLOATING + WHOLE:
        layouts = LAYOUTS if not entry.own_dtype or entry.gradients else LAYOUTS[:1]
        sources = list(oracle.samples(entry, databases, dtype, device))
        sources += oracle.special_samples(entry, databases, dtype, device)
        for number, sample in enumerate(sources):
            for layout in layouts if sample.source != "special" else LAYOUTS[:1]:
                yield Case(entry, reference, sample, dtype, layout, number)
    for number, (sample, says) in enumerate(oracle.error_samples(entry, databases, device)):
        yield Case(entry, reference, sample, None, says, number)


class Case:
    def __init__(self, entry, reference, sample, dtype, layout, number):
        self.entry, self.reference, self.sample, self.dtype, self.layout, self.number = (
            entry, reference, sample, dtype, layout, number)

    def __str__(self):
        where = "error_inputs" if self.dtype is None else f"{str(self.dtype).removeprefix('torch.')}, {self.layout}"
        return f"{self.entry.name}: {self.sample.source} {self.number} ({where}): {self.sample}"

    def run(self, counts):
        oracle.seed(f"{self.entry.name} {self.dtype} {self.layout} {self.number}")
        if self.dtype is None:
            return check_error(self.entry, self.sample, self.layout, counts)
        self.sample = oracle.prepare(self.sample, self.dtype, self.layout, self.number)
        return check(self.entry, self.reference, self.sample, counts)


def run_entry(entry, databases, arguments, note):
    report = Report(entry.name)
    all_cases = list(cases(entry, databases, arguments.device))
    if arguments.share:
        step = max(1, len(all_cases) // arguments.share_size)
        all_cases = all_cases[::step]
    for case in all_cases:
        note(case)
        try:
            case.run(report.counts)
        except Inexpressible as reason:
            report.counts["not expressible"] += 1
            if arguments.verbose:
                print("inexpressible", case, reason)
        except PyTorchRefuses as reason:
            report.counts["PyTorch refuses"] += 1
            if arguments.verbose:
                print("PyTorch refuses", case, reason)
        except Disagreement as disagreement:
            rule = differences.covering(entry, case.sample, disagreement)
            if rule:
                report.differences[rule.title] += 1
            else:
                report.failures.append(f"{case}\n    {disagreement.kind}: {disagreement.message}")
    return report


class Child:
    """One entry in a forked process; it writes what it does into shared memory, and its report into a pipe."""

    def __init__(self, entry, databases, arguments):
        self.entry, self.began = entry, time.monotonic()
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
            report = run_entry(entry, databases, arguments, self.note)
            with os.fdopen(write, "wb") as out:
                pickle.dump(report, out)
            status = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(status)

    def note(self, case):
        text = str(case).encode()[:4095]
        self.doing[:len(text) + 1] = text + b"\0"

    def last(self):
        return self.doing[:].split(b"\0")[0].decode(errors="replace")

    def read(self):
        """Reads on; whether the child has closed its end."""
        data = os.read(self.pipe, 1 << 16)
        self.output += data
        return not data

    def report(self, killed):
        os.close(self.pipe)
        _, status = os.waitpid(self.pid, 0)
        if status == 0 and not killed:
            return pickle.loads(self.output)
        report = Report(self.entry.name)
        how = f"took more than {killed} s" if killed else f"ended with status {status} (crash)"
        report.failures.append(f"{self.last()}\n    {how} at or after this sample")
        return report


def run_all(entries, databases, arguments):
    waiting, running, reports = list(reversed(entries)), [], []
    while waiting or running:
        while waiting and len(running) < arguments.jobs:
            running.append(Child(waiting.pop(), databases, arguments))
        ready, _, _ = select.select([c.pipe for c in running], [], [], 1)
        for child in list(running):
            late = time.monotonic() - child.began > arguments.limit
            if late:
                os.kill(child.pid, signal.SIGKILL)
            if late or (child.pipe in ready and child.read()):
                running.remove(child)
                report = child.report(arguments.limit if late else 0)
                reports.append(report)
                if report.failures or not arguments.share:
                    print(f"{report.name}: {dict(report.counts)} differences {dict(report.differences)} "
                          f"failures {len(report.failures)} ({time.monotonic() - child.began:.1f} s)", flush=True)
                for failure in report.failures[:arguments.show]:
                    print("  FAILED " + failure, flush=True)
    return reports


def main():
    parser = argparse.ArgumentParser(prog="opinfo", description=__doc__)
    parser.add_argument("--library", required=True, help="the shim that CMake builds (libvoxgrad_opinfo.so)")
    parser.add_argument("--share", action="store_true", help="a fixed sample of each op's, in about a minute")
    parser.add_argument("--share-size", type=int, default=60, help="cases of each op in --share")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--only", help="ops whose name contains this")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="processes at a time")
    parser.add_argument("--limit", type=float, default=600, help="seconds that one op may take")
    parser.add_argument("--show", type=int, default=5, help="failures to show of each op")
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()

    torch.set_num_threads(1)  # and so the fork below copies no thread pool
    databases = oracle.import_databases()
    entries = [e for e in ops.ENTRIES if not arguments.only or arguments.only in e.name]
    ops.use_cuda(arguments.device == "cuda")
    missing = [e.name for e in entries if not e.of.startswith("module:") and e.of not in databases[0]]
    entries = [e for e in entries if e.name not in missing]
    reports = run_all(entries, databases, arguments)
    total = Counter()
    for report in reports:
        total += report.counts
        total["differences"] += sum(report.differences.values())
        total["failures"] += len(report.failures)
    print(f"opinfo, PyTorch {torch.__version__}, {arguments.device}: {len(reports)} ops, {dict(total)}")
    if missing:
        print(f"not in this PyTorch: {missing}")
    return 1 if total["failures"] else 0
