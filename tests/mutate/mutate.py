"""Mutants: places made wrong one at a time, to see whether a test fails.

./run mutate [PATH] [--sample N]     those of files below PATH, and N of them at random

Each mutant is three lines of a list in this folder:

    core/parallel.cpp | test_core Parallel.*
    if («chunk < lowest_failed_.load(std::memory_order_relaxed)») {
    true

The file, and the test program with the filter of tests that reach the place; a line of the file, in which « and »
mark what changes; and what stands there instead. A marked part that ends in ';' is a statement ('-': it is left out),
any other one is an expression. The line must be in the file exactly once.

All mutants are in one build of a copy of the tree, in build/mutate; the environment variable VOXGRAD_MUTANT
chooses one. A mutant is killed if the program fails, crashes or takes too long.
"""

import argparse
import os
import pathlib
import random
import subprocess
import sys
from dataclasses import dataclass

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
TREE = ROOT / "build" / "mutate"
BUILD = TREE / "build" / "cpu-release"
SECONDS = 300

CHOICE = """#include <cstdlib>
static bool vox_mutant(int n) {
  static const char* const text = std::getenv("VOXGRAD_MUTANT");
  static const int chosen = text ? std::atoi(text) : 0;
  return chosen == n;
}
"""


@dataclass
class Mutant:
    number: int
    path: str
    program: str
    tests: str
    line: str
    new: str

    def __str__(self):
        return f"{self.path}: {self.line} -> {self.new}"

    def place(self, text):
        """Begin and end of what changes, and the choice between it and what is wrong."""
        before, rest = self.line.split("«", 1)
        old, after = rest.split("»", 1)
        if text.count(before + old + after) != 1:
            sys.exit(f"mutate: {self}: is in the file {text.count(before + old + after)} times")
        begin = text.index(before + old + after) + len(before)
        if old.endswith(";"):
            new = "" if self.new == "-" else self.new
            choice = f"{{ if (vox_mutant({self.number})) {{ {new} }} else {{ {old} }} }}"
        else:
            choice = f"(vox_mutant({self.number}) ? ({self.new}) : ({old}))"
        return begin, begin + len(old), choice


def read_mutants(folder=FOLDER):
    mutants = []
    for file in sorted(folder.glob("*.txt")):
        for block in file.read_text().strip().split("\n\n"):
            where, line, new = [part.strip() for part in block.split("\n")]
            path, tests = [part.strip() for part in where.split("|")]
            program, tests = tests.split(" ", 1)
            mutants.append(Mutant(len(mutants) + 1, path, program, tests, line, new))
    return mutants


def write(path, text):
    """Only what changed, so that the build compiles only that."""
    if not path.exists() or path.read_bytes() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)


def build(mutants):
    files = subprocess.check_output(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, text=True).split("\n")
    for name in filter(None, files):
        if not (ROOT / name).is_file():
            continue
        text = (ROOT / name).read_bytes()
        here = [m for m in mutants if m.path == name]
        if here:
            text = text.decode()
            for begin, end, choice in sorted((m.place(text) for m in here), reverse=True):
                text = text[:begin] + choice + text[end:]
            text = (CHOICE + text).encode()
        write(TREE / name, text)
        (TREE / name).chmod((ROOT / name).stat().st_mode)
    arguments = os.environ.get("VOXGRAD_CMAKE_ARGS", "").split()
    for command in (["cmake", "--preset", "cpu-release", *arguments],
                    ["ninja", "-C", str(BUILD), *sorted({m.program for m in mutants})]):
        subprocess.check_call(command, cwd=TREE, stdout=subprocess.DEVNULL)


def passes(program, tests, number):
    command = [str(BUILD / "tests" / program), "--gtest_brief=1", f"--gtest_filter={tests}"]
    try:
        return subprocess.run(command, env=dict(os.environ, VOXGRAD_MUTANT=str(number)), timeout=SECONDS,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", nargs="?", default="")
    parser.add_argument("--sample", type=int)
    options = parser.parse_args()
    mutants = read_mutants()
    build(mutants)
    chosen = [m for m in mutants if m.path.startswith(options.path)]
    if options.sample is not None:
        chosen = random.sample(chosen, min(options.sample, len(chosen)))
    for program, tests in sorted({(m.program, m.tests) for m in chosen}):
        if not passes(program, tests, 0):
            sys.exit(f"mutate: {program} --gtest_filter={tests} fails without a mutant")
    survivors = 0
    for mutant in chosen:
        killed = not passes(mutant.program, mutant.tests, mutant.number)
        survivors += not killed
        print("killed  " if killed else "SURVIVED", mutant, flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} mutants killed")
    sys.exit(survivors > 0)


if __name__ == "__main__":
    main()
