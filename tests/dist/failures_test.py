"""A rank that dies, hangs, throws or makes another call ends the others, with an error that names it, and in time.

python3 failures_test.py --victim build/cpu-release/tests/dist_victim [--kills 50]
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

TIMEOUT = 3  # seconds that ranks wait for each other
SLACK = 25  # until mpirun itself has ended, on a busy machine


def is_alive(process):
    try:
        with open(f"/proc/{process}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


class Run:
    """Three ranks of the victim under mpirun."""

    def __init__(self, arguments, way, culprit, ranks=3):
        self.folder = tempfile.TemporaryDirectory()
        self.checkpoint = os.path.join(self.folder.name, "checkpoint.safetensors")
        environment = dict(os.environ, VOXGRAD_DIST_TIMEOUT=str(TIMEOUT), VOXGRAD_NUM_THREADS="1")
        self.log = open(os.path.join(self.folder.name, "log"), "w+")
        self.process = subprocess.Popen(
            arguments.mpirun.split() + ["-n", str(ranks), arguments.victim, way, str(culprit), self.checkpoint],
            env=environment, stdout=self.log, stderr=self.log)

    def text(self):
        with open(self.log.name) as log:
            return log.read()

    def wait_for(self, words, seconds=30):
        end = time.monotonic() + seconds
        while words not in self.text():
            assert time.monotonic() < end and self.process.poll() is None, f"no '{words}' in:\n{self.text()}"
            time.sleep(0.01)

    def processes(self):
        return {int(rank): int(process) for rank, process in re.findall(r"rank (\d+) is process (\d+)", self.text())}

    def check_end(self, expected):
        """All have ended within the time, the text is among their words, and the checkpoint is whole."""
        try:
            status = self.process.wait(TIMEOUT + SLACK)
        except subprocess.TimeoutExpired:
            for process in [*self.processes().values(), self.process.pid]:
                os.kill(process, signal.SIGKILL)
            raise AssertionError(f"still running after {TIMEOUT + SLACK} s:\n{self.text()}")
        text = self.text()
        assert status != 0, f"mpirun reports success:\n{text}"
        assert re.search(expected, text), f"no '{expected}' in:\n{text}"
        left = [process for process in self.processes().values() if is_alive(process)]
        assert not left, f"processes {left} still run"
        if os.path.exists(self.checkpoint):
            with open(self.checkpoint, "rb") as file:
                bytes = file.read()
            header = int.from_bytes(bytes[:8], "little")
            assert len(bytes) == 8 + header + 4 * (8 * 27 + 8), "the checkpoint is not whole"
        self.log.close()
        self.folder.cleanup()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--victim", required=True)
    parser.add_argument("--mpirun", default="mpirun --oversubscribe --bind-to none --allow-run-as-root")
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()

    expected = {
        # mpirun sees a process that is killed, and may end the others before they have told who it was.
        "kill": r"rank 1 ended (before|in) call \d+|process rank 1 .*exited on signal 9",
        "stop": r"rank 1 did not come to call \d+, .* within 3 s",
        "hang": r"rank 1 did not come to call \d+, .* within 3 s",
        "throw": r"rank 1: thrown on purpose",
        "exit": r"the ranks disagree about call \d+: .*rank 1: the end of the program",
        "shape": r"the ranks disagree about call \d+: rank 0: all_reduce\(sum\) of f32 \(3,\) on the CPU; "
                 r"rank 1: all_reduce\(sum\) of f32 \(2,3\) on the CPU",
        "dtype": r"the ranks disagree about call \d+: .*rank 1: all_reduce\(sum\) of f64 \(3,\)",
        "more calls": r"the ranks disagree about call \d+: .*rank 1: barrier",
    }
    for culprit in (1, 0):
        for way, text in expected.items():
            if culprit == 0:
                text = text.replace("rank 1", "rank 0")
                if way in ("shape", "dtype", "more calls"):
                    text = "the ranks disagree about call"
                if way in ("kill", "stop"):  # the server of the agreement is gone, or does not answer
                    text = r"rank 0 (ended|did not answer)|process rank 0 .*exited on signal 9"
            began = time.monotonic()
            Run(arguments, way, culprit).check_end(text)
            print(f"rank {culprit}, {way}: {time.monotonic() - began:.1f} s", flush=True)

    seed = arguments.seed if arguments.seed is not None else random.randrange(1 << 30)
    print(f"seed {seed}", flush=True)
    dice = random.Random(seed)
    for kill in range(arguments.kills):
        run = Run(arguments, "none", 0)
        run.wait_for("running")
        time.sleep(dice.random() * 0.2)
        rank, how = dice.randrange(3), dice.choice([signal.SIGKILL, signal.SIGSTOP])
        began = time.monotonic()
        os.kill(run.processes()[rank], how)
        run.check_end(f"rank {rank} (ended|did not)|process rank {rank} .*exited on signal 9")
        print(f"kill {kill + 1}: {how.name} of rank {rank}: {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
