"""Mutants: places made wrong one at a time, to see whether a test fails.

./run mutate [PATH] [--sample N]     files below PATH: the listed mutants, and N that operators make (400)
./run mutate --kernels               the same of CUDA kernels, with the tests that need a GPU; on a machine with one

A mutant is three lines, as in mutants.txt:

    core/parallel.cpp
    if («chunk < lowest_failed_.load(std::memory_order_relaxed)») {
    true

The file; a line of it, in which « and » mark what changes; and what stands there instead. A marked part that ends in
';' is a statement ('-': it is left out), any other one is an expression. The line must be in the file exactly once.
After the file, '|' begins a note.

OPERATORS make more such mutants, of all sources and of headers that few files include. --sample takes a share from each
folder and from each operator, the same ones for the same --seed. survivors.txt lists mutants that no test can or need
notice; their notes say why.

All mutants are in one build of a copy of the tree, in build/mutate (VOXGRAD_PRESET: cpu-release; with a preset of CUDA,
the host code of cuda/ has mutants too). The environment variable VOXGRAD_MUTANT chooses one (switch.h). Those that do
not compile are left out. Each test of ctest runs once and notes which mutants it reaches. A mutant meets the tests that
reach it, the quickest first. It is killed if one fails, crashes or takes too long. The exit status is 1 if a mutant
survives that is not in survivors.txt.
"""

import argparse
import collections
import concurrent.futures
import functools
import hashlib
import itertools
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
TREE = ROOT / "build" / "mutate"
PRESET = os.environ.get("VOXGRAD_PRESET", "cpu-release")
BUILD = TREE / "build" / PRESET
GROUPS = ("core", "autograd", "ops/cpu", "ops", "nn", "dist", "watch", "cuda")
NEED_GPU = re.compile(r"nccl|cuda/runtime|/launch|\.cuh?$")  # what no test reaches without one
MOST_USERS = 12  # a header that more sources include is not changed: everything would be compiled again
MEMORY = 12 << 30  # bytes that a process with a mutant may have


@dataclass
class Mutant:
    path: str
    note: str
    line: str
    new: str
    number: int = 0

    def __str__(self):
        return f"{self.path} | {self.note}\n{self.line}\n{self.new}\n"

    def key(self):
        return self.path, self.line, self.new

    def group(self):
        return next(g for g in GROUPS if self.path.startswith(g + "/"))

    def place(self, text):
        """Begin and end of what changes, and the choice between it and what is wrong."""
        before, old, after = re.split("[«»]", self.line)
        if text.count(before + old + after) != 1:
            sys.exit(f"mutate: is in the file {text.count(before + old + after)} times:\n{self}")
        begin = text.index(before + old + after) + len(before)
        if old.endswith(";"):
            new = "" if self.new == "-" else self.new
            choice = f"{{ if (vox_mutant({self.number})) {{ {new} }} else {{ {old} }} }}"
        else:
            truth = "!!" if self.new in ("true", "false") else ""
            choice = f"(vox_mutant({self.number}) ? ({self.new}) : {truth}({old}))"
        return begin, begin + len(old), choice


def read_mutants(file):
    mutants = []
    for block in filter(None, file.read_text().strip().split("\n\n")):
        where, line, new = [part.strip() for part in block.split("\n")]
        path, _, note = where.partition(" | ")
        mutants.append(Mutant(path, note, line, new, len(mutants) + 1))
    return mutants


# An operator finds its places in a line by an expression, whose group 1 becomes what the dictionary or function says.
# What is marked is the whole operand around the place, so that no precedence changes; or, with ALONE, the place.

ALONE = True
AXES = {"d": "h", "h": "w", "w": "d", "0": "1", "1": "2", "2": "0"}
CONDITION = (r"\b(?:if|while) \((?!.*;|(?:const )?[\w:]+[&*]? \w+ = )(.+)\)"
             r"(?: \{| return\b.*| continue;| break;| throw\b.*)?$")
OPERATORS = [
    ("bound", r" (<=?|>=?) ", {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}),
    ("comparison", r" ([=!]=|&&|\|\|) ", {"==": "!=", "!=": "==", "&&": "||", "||": "&&"}),
    ("comparison", r"(?<![\w)])(!)(?=[\w(])", {"!": ""}),
    ("sign", r" ([+-]) ", {"+": "-", "-": "+"}),
    ("sign", r"(?:[(,=?:] ?|return )(-)(?=[\w(])", {"-": ""}),
    ("sign", r"^\s+(\S+ \+= .*;)$", lambda old: old.replace("+=", "-=", 1), ALONE),
    ("sign", r"^\s+(\S+ -= .*;)$", lambda old: old.replace("-=", "+=", 1), ALONE),
    ("factor", r" ([*/%]) ", {"*": "/", "/": "*", "%": "/"}),
    ("number", r"(?<![\w.<\[\"'])(\d+)(?![\w.>'])", lambda old: str(int(old) + 1) if old != "1" else "0", ALONE),
    ("number", r"(?<![\w.])(\d+\.\d*f?|\d+e-?\d+)(?![\w.])", lambda old: f"2 * {old}", ALONE),
    ("number", r"std::(min|max)\b", {"min": "max", "max": "min"}),
    ("axis", r"\.([dhw])\b(?!\()", AXES),
    ("axis", r"\w\[([012])\]", AXES),
    ("arguments", r"(?<![\w:.>])((?!\S*(?:min|max)\()[\w:.>-]+\([\w.]+, [\w.]+\))",
     lambda old: re.sub(r"\((.*), (.*)\)", r"(\2, \1)", old)),
    ("copy", r"\w(\.(?:clone|contiguous|detach)\(\))", lambda old: ""),
    ("dtype", r"\w(\.to\([\w.]+\))", lambda old: ""),
    ("dtype", r"\b([fi]64|b?f16|f32)\b",
     {"f64": "f32", "f32": "f64", "i64": "f32", "bf16": "f16", "f16": "bf16"}, ALONE),
    ("condition", CONDITION, lambda old: "false", ALONE),
    ("condition", CONDITION, lambda old: "true", ALONE),
    ("check", r"(?<![.\w])check(?:<\w+>)?\(([^,]+)[,)]", lambda old: "true", ALONE),
    ("statement", r"^\s+(?!return|throw|delete|else|case|using|co_|break|continue)([\w:.<>-]+\(.*\);|"
                  r"[\w.>\[\]*-]+ [-+*/|&]?= .*;|(?:\+\+|--)[\w.]+;)$", lambda old: "-", ALONE),
]
NO_CODE = re.compile("constexpr|template|static_assert|using |enum |case |operator|requires|noexcept|namespace|"
                     "typename|asm")


def masked(text):
    """The text with blanks for what is no code: comments, strings, directives, constants, words of errors."""
    blank = lambda m: re.sub(r"[^\n]", " ", m[0])
    text = re.sub(r'//[^\n]*|/\*.*?\*/|R"\((?:.|\n)*?\)"|^[ ]*#(?:\\\n|.)*', blank, text, flags=re.M)
    text = re.sub(r"'(?:\\.|[^\\'\n])'", lambda m: "'" + "_" * (len(m[0]) - 2) + "'", text)
    text = re.sub(r'"(?:\\.|[^"\\\n])*"', lambda m: '"' + " " * (len(m[0]) - 2) + '"', text)
    result = list(re.sub(r"constexpr [^;(){}]*[={][^;]*;", blank, text))
    for call in re.finditer(r"\bcheck(?:<\w+>)?\(|\bthrow [\w:]+\(", text):
        depth, code = 1, call[0].startswith("check")
        for i in range(call.end(), len(text)):
            depth += (text[i] in "([{") - (text[i] in ")]}")
            if depth == 0:
                break
            code = code and (depth > 1 or text[i] != ",")
            if not code and text[i] not in "\n,()[]{}":
                result[i] = " "
    return "".join(result)


def operand(line, begin, end, operator):
    """The bounds of the whole operand around [begin, end), or nothing if it has none or does not end in this line."""
    stop = {"&&": ("||",), "||": ()}.get(operator, ("&&", "||"))

    def ends(i):
        here = line[i:i + 2], line[i - 1:i + 1]
        return line[i] in ",;?" or line[i] == ":" and "::" not in here or not set(stop).isdisjoint(here) or \
            line[i] == "=" and here[0] != "==" and not re.match("[=!<>]=", here[1])

    def walk(i, step):
        depth = 0
        while 0 <= i < len(line) and (depth or line[i] not in ("([{", ")]}")[step > 0] and not ends(i)):
            depth += step * ((line[i] in "([{") - (line[i] in ")]}"))
            i += step
        return i, depth

    (left, _), (right, depth) = walk(begin - 1, -1), walk(end, 1)
    left += 1 + re.match(r"\s*(?:(?:if|for|while) \(.*\) )?(?:(?:return|throw|else)\b\s*)?", line[left + 1:begin]).end()
    whole = line[left:right].rstrip()
    if depth or line[right:right + 1] == "=" or re.match(r"[\w:<>]+[&*]* \w", whole) or re.search('[;"]', whole):
        return None  # cut off, assigned to, a declaration, or words
    return (left, left + len(whole)) if left <= begin and end <= left + len(whole) else None


def make(path, text):
    """All mutants of a file."""
    code, lines = masked(text).split("\n"), text.split("\n")
    for number, (plain, line) in enumerate(zip(code, lines)):
        if NO_CODE.search(plain) or not plain.startswith("  ") or text.count(line.strip()) != 1:
            continue
        before = next((c.rstrip()[-1] for c in reversed(code[:number]) if c.strip()), ";")
        after = next((c.lstrip()[0] for c in code[number + 1:] if c.strip()), ";")
        for name, pattern, change, *alone in OPERATORS:
            for match in re.finditer(pattern, plain):
                begin, end = match.span(1)
                old = line[begin:end]
                whole = (begin, end) if alone else operand(plain, begin, end, old)
                if not whole or old.endswith(";") and before not in ";{}" or \
                        name in ("condition", "statement") and plain.count("(") != plain.count(")"):
                    continue
                left, right = whole
                if not alone and (not plain[:left].strip() and before not in ";{},(=?:&|" or
                                  not plain[right:].strip() and after not in ";{},)]?:&|"):
                    continue  # the operand may be a part of a longer one
                changed = change[old] if isinstance(change, dict) else change(old)
                yield Mutant(path, name, f"{line[:left]}«{line[left:right]}»{line[right:]}".strip(),
                             line[left:begin] + changed + line[end:right])


def sources():
    """The files of the tree, without those that .gitignore names (there may be no Git)."""
    for folder, folders, names in os.walk(ROOT):
        folders[:] = sorted(f for f in folders if not re.match(r"build|out$|\.|__pycache__|my_exercises", f))
        for path in (pathlib.Path(folder, name) for name in names if not name.startswith(".")):
            yield str(path.relative_to(ROOT)), path.read_bytes()


def generate(below, count, seed, kernels, used):
    """`count` mutants, shared among folders by the square root of how many there are, and in each among operators."""
    files = {name: text.decode() for name, text in sources()
             if name.startswith(GROUPS) and name.endswith((".cpp", ".h", ".cu", ".cuh"))}
    includes = {name: set(re.findall(r'#include [<"](?:voxgrad/)?([\w/.]+)', text)) for name, text in files.items()}

    @functools.cache
    def users(header):
        found, new = set(), {header}
        while new:
            found |= new
            new = {name for name, of in includes.items() if of & new} - found
        return sum(MOST_USERS + 1 if name.endswith(".cu") else name.endswith(".cpp") for name in found)

    groups = collections.defaultdict(lambda: collections.defaultdict(list))
    for path, text in files.items():
        if not path.startswith(below) or path.startswith("cuda") and not PRESET.startswith("cuda"):
            continue
        if re.search(r"\.cuh?$", path) if kernels else \
                not NEED_GPU.search(path) and (path.endswith(".cpp") or users(path) <= MOST_USERS):
            for mutant in make(path, text):
                groups[mutant.group()][mutant.note].append(mutant)
    sizes = {name: sum(map(len, of.values())) ** 0.5 for name, of in groups.items()}
    result, taken = [], {(m.path, re.sub("[«»]", "", m.line)) for m in used}
    for name, of in sorted(groups.items()):
        order = lambda m: hashlib.sha1(f"{seed}{m.key()}".encode()).hexdigest()
        queues = [sorted(queue, key=order) for _, queue in sorted(of.items())]
        most = len(result) + round(count * sizes[name] / sum(sizes.values()))
        for mutant in filter(None, itertools.chain(*itertools.zip_longest(*queues))):
            place = mutant.path, re.sub("[«»]", "", mutant.line)
            if place not in taken and len(result) < most:  # one for each line
                taken.add(place)
                result.append(mutant)
    return result


def build(mutants, *targets):
    """Builds a copy of the tree with all mutants that compile, and returns those."""
    files = dict(sources())
    known = TREE / "do_not_compile.txt"  # a second run does not try them again
    bad = set(known.read_text().split("\0")) if known.exists() else set()
    mutants = [m for m in mutants if str(m) not in bad]
    while True:
        at = {}
        for name, text in files.items():
            here = [m for m in mutants if m.path == name]
            for begin, end, choice, m in sorted(((*m.place(text.decode()), m) for m in here), key=lambda p: -p[0]):
                at[name, text.decode().count("\n", 0, begin) + 1] = m
                text = (text.decode()[:begin] + choice + text.decode()[end:]).encode()
            if here:
                text = (FOLDER / "switch.h").read_bytes() + f'#line 1 "{name}"\n'.encode() + text
            path = TREE / name
            if not path.exists() or path.read_bytes() != text:  # so that the build compiles only what changed
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(text)
            path.chmod((ROOT / name).stat().st_mode)
        missing = [m for m in mutants if m.path not in files]
        if missing:
            sys.exit(f"mutate: has no file:\n{missing[0]}")
        arguments = os.environ.get("VOXGRAD_CMAKE_ARGS", "").split()
        subprocess.check_call(["cmake", "--preset", PRESET, *arguments], cwd=TREE, stdout=subprocess.DEVNULL)
        run = subprocess.run(["ninja", "-C", str(BUILD), "-k0", *targets], capture_output=True, text=True)
        if run.returncode == 0:
            return mutants
        wrong, doubtful, where = [], [], []
        for line in run.stdout.split("\n"):
            if re.search("required from|constexpr", line):
                where.append(line)  # of the error or warning that follows
            elif "warning:" in line:
                where = []
            elif "error" in line or "detected during" in line:  # nvcc says after its error where a template is used
                line = re.sub(r"at line (\d+) of \W?([\w/.-]+)", r"\2:\1:", line)
                # What is not declared may be so because of an error before.
                blamed = doubtful if re.search("not declared|is undefined", line) else wrong
                for path, number in re.findall(r"([\w/.-]+\.\w+)[:(](\d+)[:)]", " ".join([*where, line])):
                    blamed += [m for m in [at.get((path, int(number)))] if m and m not in blamed]
                where = []
        wrong = wrong or doubtful
        if not wrong:
            sys.exit(run.stdout + "mutate: does not build")
        print(f"{len(wrong)} mutants do not compile", flush=True)
        mutants = [m for m in mutants if m not in wrong]
        bad.update(map(str, wrong))
        known.write_text("\0".join(sorted(bad)))


@dataclass(frozen=True)
class Test:
    command: tuple  # of GoogleTest: the program
    names: tuple  # of GoogleTest: the filter
    environment: tuple
    seconds: float = 0


def read_tests(kernels):
    """Those of ctest. Tests with a GPU start slowly, so those of a suite and a parameter stay together."""
    label = "^(gpu|sanitize)$" if kernels else "^cpu$"
    listed = json.loads(subprocess.check_output(["ctest", "--show-only=json-v1", "-L", label], cwd=BUILD))
    tests = collections.defaultdict(tuple)
    for test in listed["tests"]:
        command = tuple(test.get("command", []))
        environment = tuple(next((p["value"] for p in test["properties"] if p["name"] == "ENVIRONMENT"), []))
        one = re.search(r"(/[^\0]*/tests/test_\w+)\0(?:.*\0)?"
                        r"(?:--gtest_filter|TEST_FILTER)=([^*:.\0]+\.[^*:\0]+)",
                        "\0".join(command))  # the second form is of CMake 4
        if one:
            suite = re.sub(r"(?<=\w)\.\w+", "", one[2]) if kernels else one[2]  # with what follows the last "/"
            tests[(one[1],), suite, environment] += (one[2],)
        elif any(re.search("/tests/(test_|dist_victim)", word) for word in command):
            tests[command, "", environment] = ()
    return [Test(command, names, environment) for (command, _, environment), names in tests.items()]


def passes(tests, environment, seconds):
    """Whether tests of one program pass, in one process (77: there is nothing to do)."""
    names = [name for test in tests for name in test.names]
    command = [*tests[0].command, *(["--gtest_fail_fast", "--gtest_filter=" + ":".join(names)] if names else [])]
    environment = {**os.environ, "VOXGRAD_NUM_THREADS": "2", **dict(e.split("=", 1) for e in tests[0].environment),
                   **environment}
    limit = lambda: resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, preexec_fn=limit, start_new_session=True)
        try:
            return process.wait(seconds) in (0, 77)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
            return False


def reach(test, seconds):
    """The test with its time, and the numbers of the mutants that it reaches within `seconds`."""
    with tempfile.NamedTemporaryFile() as file:
        start = time.time()
        good = passes([test], {"VOXGRAD_MUTANT": "-1", "VOXGRAD_REACHED": file.name}, seconds)
        if not good:
            print("fails without a mutant, and is left out:", *test.command, *test.names[:1], flush=True)
        return replace(test, seconds=time.time() - start), {int(n) for n in file.read().split()} if good else set()


def killed(number, tests):
    """Whether a test fails. Tests of one program run in one process, first those of 2 seconds in all, then of 8, ..."""
    mutant, none = {"VOXGRAD_MUTANT": str(number)}, {"VOXGRAD_MUTANT": "0"}
    done, most, batches = 0, 2, collections.defaultdict(list)
    for i, test in enumerate(tests):
        batches[test.command, test.environment].append(test)
        done += test.seconds
        if done >= most or i + 1 == len(tests):
            for together in batches.values():
                most_seconds = 20 + 5 * sum(t.seconds for t in together)
                if passes(together, mutant, most_seconds):
                    continue
                # Some tests pass alone but not after others.
                if passes(together, none, most_seconds) or any(not passes([t], mutant, most_seconds) for t in together):
                    return True
            most *= 4
            batches.clear()
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", nargs="?", default="")
    parser.add_argument("--kernels", action="store_true")
    parser.add_argument("--sample", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=300, help="of the tests that a mutant meets, at most")
    options = parser.parse_args()
    kernels = options.kernels
    if kernels and not PRESET.startswith("cuda"):
        parser.error(f"--kernels needs a preset with CUDA, as in VOXGRAD_PRESET=cuda-release; got {PRESET}")
    if options.sample < 0 or options.jobs < 1 or not options.seconds > 0:
        parser.error("needs --sample >= 0, --jobs >= 1 and --seconds > 0")
    listed = [] if kernels else [m for m in read_mutants(FOLDER / "mutants.txt") if m.path.startswith(options.path)]
    accepted = {m.key() for m in read_mutants(FOLDER / "survivors.txt")}
    mutants = listed + generate(options.path, options.sample, options.seed, kernels, listed)
    for number, mutant in enumerate(mutants, 1):
        mutant.number = number
    if not mutants:
        parser.error(f"found no place to change below '{options.path}'; a path is as in `git ls-files`")
    built = build(mutants, "voxgrad_tests")
    for mutant in listed:
        if mutant not in built:
            print(f"of mutants.txt, does not compile:\n{mutant}", end="", flush=True)
    reaching, counts = collections.defaultdict(list), collections.defaultdict(collections.Counter)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for test, numbers in pool.map(lambda test: reach(test, options.seconds), read_tests(kernels)):
            for number in numbers:
                reaching[number].append(test)
        print(f"{len(reaching)} of {len(built)} mutants are reached by tests", flush=True)

        def judge(mutant):
            tests = sorted(reaching[mutant.number], key=lambda t: t.seconds)
            ends = itertools.accumulate(t.seconds for t in tests)
            tests = [t for t, end in zip(tests, ends) if end <= options.seconds]
            if killed(mutant.number, tests):
                return mutant, "killed", len(tests)
            return mutant, "accepted" if mutant.key() in accepted else "SURVIVED", len(tests)

        for mutant, result, tests in pool.map(judge, built):
            counts[mutant.group()][result] += 1
            if result != "killed":
                print(f"\n{result}, {tests} tests:\n{mutant}", end="", flush=True)
    counts["all"] = sum(counts.values(), collections.Counter())
    print()
    for group, of in counts.items():
        print(f"{group:10} {of['killed']:4} of {sum(of.values()):4} killed, {of['accepted']} accepted, "
              f"{of['SURVIVED']} survived")
    sys.exit(counts["all"]["SURVIVED"] > 0)


if __name__ == "__main__":
    main()
