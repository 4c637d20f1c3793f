#!/usr/bin/env python3
"""The machine code of every CUDA kernel, symbol names aside: to see that a change leaves it as it is.

    machine_code.py compile BUILD OUT [FILE.cu ...]   compiles cuda/**/*.cu of BUILD's source tree, or these files,
                                                      for sm_90a into OUT/*.cubin; BUILD is configured, not built
    machine_code.py compare BEFORE AFTER              compares two such folders; exit status 1 if they differ

Names of files and functions may change, and kernels may move to other files: kernels are compared as a multiset.
"""

import collections
import concurrent.futures
import hashlib
import pathlib
import re
import struct
import subprocess
import sys

FLAGS = ("-std=c++20 --extended-lambda --expt-relaxed-constexpr -O3 -DNDEBUG "
         "-gencode=arch=compute_90a,code=sm_90a -cubin").split()
JOBS = 2


def compile_all(build, out, files):
    build, out = pathlib.Path(build), pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    home = re.search(r"^CMAKE_HOME_DIRECTORY:INTERNAL=(.*)$", (build / "CMakeCache.txt").read_text(), re.M)
    tree = pathlib.Path(home.group(1))
    includes = [f"-I{build / folder}" for folder in ("include", "include_private")]

    def run(source):
        name = "+".join(source.relative_to(tree).with_suffix("").parts)
        command = ["nvcc", *FLAGS, *includes, str(source), "-o", str(out / f"{name}.cubin")]
        done = subprocess.run(command, capture_output=True, text=True)
        print(name if done.returncode == 0 else f"{name}: failed\n{done.stderr}", flush=True)
        return done.returncode

    sources = [tree / f for f in files] or sorted(tree.glob("cuda/**/*.cu"))
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        return max(pool.map(run, sources))


def kernels(cubin):
    """(hash of the code and what it uses, number of instructions) -> how many functions of the file have it.

    The bytes of a .text section of the ELF file hold no names: addresses of symbols are relocations, zeros here."""
    data = pathlib.Path(cubin).read_bytes()
    offset, = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, offset + i * size) for i in range(count)]

    def name_of(header):
        begin = headers[names][4] + header[0]
        return data[begin:data.index(b"\0", begin)].decode()

    sizes = {name_of(h): h[5] for h in headers}
    found = collections.Counter()
    for header in headers:
        name = name_of(header)
        if not name.startswith(".text."):
            continue
        _, _, flags, _, at, length, _, info, _, _ = header  # flags: barriers; info: registers
        used = flags, info >> 24, *(sizes.get(s + name[6:], 0) for s in (".nv.constant0.", ".nv.shared."))
        digest = hashlib.sha256(data[at:at + length] + repr(used).encode()).hexdigest()
        found[digest, length // 16] += 1
    return found


def compare(before, after):
    old, new = ({p.stem: kernels(p) for p in sorted(pathlib.Path(side).glob("*.cubin"))} for side in (before, after))
    all_old, all_new = sum(old.values(), collections.Counter()), sum(new.values(), collections.Counter())
    for unit, code in new.items():
        same = next((f"as {name}" for name, other in old.items() if other == code), "from several files")
        print(f"{unit}: {code.total()} functions, {sum(n * length for (_, length), n in code.items())} instructions, "
              + (f"{(code - all_old).total()} CHANGED" if code - all_old else f"equal, {same}"))
    print(f"{all_old.total()} functions before, {all_new.total()} after; "
          f"only before {(all_old - all_new).total()}, only after {(all_new - all_old).total()}")
    return all_old != all_new


if __name__ == "__main__":
    if len(sys.argv) < 4 or sys.argv[1] not in ("compile", "compare"):
        sys.exit(__doc__)
    if sys.argv[1] == "compile":
        sys.exit(compile_all(sys.argv[2], sys.argv[3], sys.argv[4:]))
    sys.exit(compare(sys.argv[2], sys.argv[3]))
