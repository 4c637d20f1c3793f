#!/usr/bin/env python3
"""Compiles CUDA sources for several architectures, and prints what their kernels need of a multiprocessor: registers,
spilled bytes, shared memory (without what a launch adds). Needs nvcc, but no GPU.

    resources.py BUILD [--arch 80 --arch 90a ...] [--kernels] [--jobs N] [FILE.cu ...]

BUILD is configured, not built. Without files: all below cuda/. `--kernels` prints a line for each kernel, not only for
each file. The exit status is 1 if a file does not compile, if a kernel of cuda/conv3d spills more than SPILLS says, or
if the static shared memory of a kernel of mma leaves less than its plans count with."""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

FLAGS = "-std=c++20 --extended-lambda --expt-relaxed-constexpr -O3 -DNDEBUG -Xptxas -v -cubin -o /dev/null".split()
# The architectures that voxgrad is for.
ARCHITECTURES = "80 86 89 90a 100 120".split()
# What kernels spill on the worst architecture, in bytes, by the folder and a part of the mangled name. All others: nothing.
# (Of mma, the spilled registers are none of those that the loop of products reads.)
SPILLS = [
    ("mma", "weight_grad_kernelILNS0_3ptx7OperandE2ELi2E", 76),  # f16x3
    ("mma", "F16Pair", 28),
    ("few_channels", "split_kernel", 44), ("few_channels", "product_kernel", 52), ("few_channels", "add_splits", 8),
    ("patches", "split_kernel", 240),
    ("strided", "scaled_product_kernel", 90),
    ("conv3d", "weight_grad_kernel", 16), ("conv3d", "3d_kernel", 24),  # direct.cu
]
# Of a block on every GPU since sm_80 (99 KB), less what plans may use (any_block_shared_bytes in model/machine.h).
MOST_STATIC_SHARED = (99 - 96) << 10

REPORT = re.compile(r"Compiling entry function '(?P<name>\w+)'.*?(?P<spill>\d+) bytes spill stores.*?"
                    r"Used (?P<registers>\d+) registers(?:.*?(?P<shared>\d+) bytes smem)?[^\n]*", re.S)


def compile_one(includes, tree, file, arch):
    """(error or None, [(kernel, registers, spilled bytes, static shared bytes)])"""
    command = ["nvcc", *FLAGS, f"-arch=sm_{arch}", *includes, str(tree / file)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return done.stderr, []
    # A report ends where the next one begins.
    reports = re.split(r"(?=ptxas info\s*: Compiling entry function)", done.stderr)
    found = [match for match in map(REPORT.search, reports) if match]
    return None, [(m["name"], int(m["registers"]), int(m["spill"]), int(m["shared"] or 0)) for m in found]


def may_spill(file, name):
    return max((most for folder, part, most in SPILLS if folder == file.parent.name and part in name), default=0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--arch", action="append")
    parser.add_argument("--kernels", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    args = parser.parse_intermixed_args()
    cache = (args.build / "CMakeCache.txt").read_text()
    tree = pathlib.Path(re.search(r"^CMAKE_HOME_DIRECTORY:INTERNAL=(.*)$", cache, re.M).group(1))
    includes = [f"-I{args.build / folder}" for folder in ("include", "include_private")]
    files = args.files or sorted(file.relative_to(tree) for file in tree.glob("cuda/**/*.cu"))
    failed = False
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        tasks = {(arch, file): pool.submit(compile_one, includes, tree, file, arch)
                 for arch in args.arch or ARCHITECTURES for file in files}
        print("arch\tfile\tkernels\tmost registers\tspilled bytes\tmost static shared bytes")
        for (arch, file), task in tasks.items():
            error, kernels = task.result()
            of_file = [max((k[i] for k in kernels), default=0) for i in (1, 2, 3)]
            print(arch, file, len(kernels) if error is None else "failed", *of_file, sep="\t", flush=True)
            if error is not None:
                failed = True
                print(error, file=sys.stderr)
            for name, registers, spill, shared in kernels:
                if args.kernels:
                    print("", name, "", registers, spill, shared, sep="\t")
                fits = shared <= MOST_STATIC_SHARED or "4conv3mma" not in name
                if "3vox4cuda4conv" in name and (spill > may_spill(file, name) or not fits):
                    failed = True
                    print(f"sm_{arch}, {file}: {name} spills {spill} bytes, has {shared} static shared bytes")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
