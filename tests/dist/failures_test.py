"""A rank that dies, hangs, throws or makes another call ends the others, with an error that names it, and in time.
So does a rank without memory or threads, at every place: the n-th allocation or start of a thread fails, for every
stride-th n.

python3 failures_test.py --victim build/cpu-release/tests/dist_victim [--device cpu|none|cuda] [--kills 50] [--stride 1]

Device cpu: under mpirun, which ends all ranks when one has died. Device none (agreements only) and cuda: without it, so
that nothing but voxgrad ends them.
"""

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

import ranks

TIMEOUT = 3  # seconds that ranks wait for each other
SLACK = 25  # seconds more on a busy machine; mpirun, too, waits some seconds before it kills


def is_alive(process):
    try:
        with open(f"/proc/{process}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


class Run:
    """Starts ranks of the victim, and collects what they write."""

    def __init__(self, options, way, culprit, **environment):
        self.options = options
        self.folder = tempfile.TemporaryDirectory()
        self.checkpoint = os.path.join(self.folder.name, "checkpoint.safetensors")
        self.log = open(os.path.join(self.folder.name, "log"), "w+")
        command = [options.victim, options.device, way, str(culprit), self.checkpoint]
        popen = dict(stdout=self.log, stderr=self.log,
                     env=dict(os.environ, VOXGRAD_DIST_TIMEOUT=str(TIMEOUT), VOXGRAD_NUM_THREADS="1",
                              **environment))
        if options.device == "cpu":
            self.started = [subprocess.Popen(options.mpirun.split() + ["-n", str(options.ranks)] + command, **popen)]
        else:
            self.started = ranks.start(options.ranks, command, **popen)

    def text(self):
        with open(self.log.name) as log:
            return log.read()

    def wait_for(self, words, seconds=60):
        end = time.monotonic() + seconds
        while words not in self.text():
            assert time.monotonic() < end, f"no '{words}' in:\n{self.text()}"
            time.sleep(0.01)

    def processes(self):
        """The process id of each rank."""
        return {int(rank): int(process) for rank, process in re.findall(r"rank (\d+) is process (\d+)", self.text())}

    def wait(self, stopped=None):
        """The statuses of all ranks, which must end in time, except a stopped one, which only a launcher can end."""
        end = time.monotonic() + TIMEOUT + SLACK
        if stopped is not None and self.options.device != "cpu":
            others = [p for rank, p in enumerate(self.started) if rank != stopped]
        else:
            others = self.started
        try:
            return [process.wait(max(end - time.monotonic(), 0.01)) for process in others]
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {TIMEOUT + SLACK} s:\n{self.text()}") from None
        finally:
            for process in self.started:
                process.kill()
                process.wait()

    def close(self):
        self.log.close()
        self.folder.cleanup()

    def check_end(self, expected, stopped=None):
        """Checks that all ranks end in time; that `expected` occurs in what they wrote; and that the checkpoint is
        whole."""
        statuses = self.wait(stopped)
        text = self.text()
        assert any(statuses), f"success is reported:\n{text}"
        assert re.search(expected, text), f"no '{expected}' in:\n{text}"
        left = [process for process in self.processes().values() if is_alive(process)]
        assert not left, f"processes {left} still run:\n{text}"
        if os.path.exists(self.checkpoint):
            with open(self.checkpoint, "rb") as file:
                content = file.read()
            header = int.from_bytes(content[:8], "little")
            assert len(content) == 8 + header + 4 * (8 * 27 + 8), "the checkpoint is not whole"
        self.close()

    def check_injected(self):
        """Checks that all ranks end in time, by exit(), and that an error is named. Returns whether call FAIL_AT was
        reached."""
        statuses, text = self.wait(), self.text()
        assert "terminate called" not in text and min(statuses) >= 0, text
        reached = "nothing failed" not in text
        reason = "bad_alloc|memory|does not start threads" if reached else ""
        assert not any(statuses) or re.search(reason, text), f"no reason in:\n{text}"
        assert reached or not any(statuses), text
        self.close()
        return reached


def expectations(rank, device):
    """For each way to fail, a pattern that must occur in what the ranks write."""
    here = "CUDA" if device == "cuda" else "the CPU"
    differ = r"the ranks disagree about call \d+: .*"
    all_reduce = rf"rank {rank}: all_reduce\(sum\) of %s on {here}"
    # mpirun sees that a process was killed, and may end the others before they have named it.
    died = rf"rank {rank} ended|process rank {rank} .*exited on signal 9"
    late = rf"rank {rank} did not come to call \d+, .* within {TIMEOUT} s"
    expected = {
        "kill": died,
        # The server is a thread of rank 0, so it is stopped too.
        "stop": late if rank else r"rank 0 did not answer in call \d+, ",
        "hang": late,
        "throw": f"rank {rank}: thrown on purpose",
        "exit": differ + f"rank {rank}: the end of the program",
        "more calls": differ + f"rank {rank}: barrier",
    }
    if device != "none":
        expected["shape"] = differ + all_reduce % r"f32 \(2,3\)"
        expected["dtype"] = differ + all_reduce % r"f64 \(3,\)"
    return expected


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--victim", required=True)
    parser.add_argument("--device", choices=["cpu", "none", "cuda"], default="cpu")
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--mpirun", default="mpirun --oversubscribe --bind-to none --allow-run-as-root")
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--stride", type=int, default=1)
    options = parser.parse_args()
    if options.device == "cuda" and ranks.count_gpus() < options.ranks:
        return 77

    for culprit in (1, 0):
        for way, expected in expectations(culprit, options.device).items():
            began = time.monotonic()
            Run(options, way, culprit).check_end(expected, culprit if way == "stop" else None)
            print(f"rank {culprit}, {way}: {time.monotonic() - began:.1f} s", flush=True)

    # Not the threads of MPI, and nothing of NCCL, whose own allocations would fail too.
    kinds = {"none": ("allocation", "allocations", "thread"), "cpu": ("allocation", "allocations"), "cuda": ()}
    for culprit in (1, 0):
        for way in kinds[options.device]:
            stride = 1 if way == "thread" else options.stride
            trials = 1
            while Run(options, way, culprit, FAIL_AT=str((trials - 1) * stride)).check_injected():
                trials += 1
            assert trials > 1, "no such call"
            print(f"rank {culprit}, {way}: {trials - 1} failures", flush=True)

    seed = options.seed if options.seed is not None else random.randrange(1 << 30)
    print(f"seed {seed}", flush=True)
    dice = random.Random(seed)
    for kill in range(options.kills):
        run = Run(options, "none", 0)
        run.wait_for("running")
        time.sleep(dice.random() * 0.2)
        rank, how = dice.randrange(options.ranks), dice.choice([signal.SIGKILL, signal.SIGSTOP])
        began = time.monotonic()
        os.kill(run.processes()[rank], how)
        expected = f"rank {rank} (ended|did not)|process rank {rank} .*exited on signal 9"
        if how == signal.SIGSTOP:  # ranks that wait for its data in the call before are named beside it
            expected += rf"|ranks (\d+, )*{rank}(, \d+)* did not come"
        run.check_end(expected, rank if how == signal.SIGSTOP else None)
        print(f"kill {kill + 1}: {how.name} of rank {rank}: {time.monotonic() - began:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
