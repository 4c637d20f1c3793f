#!/usr/bin/env python3
"""Reads what bench_conv3d_sweep prints, and measured.tsv, which says the same in fewer bytes:

    measured.py run.tsv... > measured.tsv    the least time of several runs; without f16, whose kernels are bf16's

There "# row" gives the precisions that a row supports, and a line has all times of a pass and dtype of the geometry
before it."""

import ast
import math
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from common import floors  # noqa: E402


PASSES = ("conv3d", "conv_transpose3d", "weight_grad")
DTYPES = ("f32", "f64", "bf16", "f16")


@dataclass
class Geometry:
    """The last columns of a line "# geometry"."""

    names: list  # "group/name"
    shapes: str

    def __post_init__(self):
        big, small, weight, stride, padding, dilation, _ = map(ast.literal_eval, self.shapes.split())
        pairs = floors.touching_pairs(big[2:], small[2:], weight[2:], stride, padding, dilation)
        self.operations = 2 * pairs * small[0] * small[1] * weight[1]  # two for each pair of channels and cells
        self.elements = math.prod(big) + math.prod(small) + math.prod(weight)


@dataclass
class Call:
    """A problem of one geometry, pass and arithmetic: a precision of f32, or another dtype."""

    key: str  # the first of the geometry's names
    names: list  # "group/name"
    pass_: str
    arithmetic: str
    us: dict = field(default_factory=dict)  # row -> microseconds, or None if not measured
    chosen: str = ""  # row

    @property
    def id(self):
        return self.key, self.pass_, self.arithmetic

    @property
    def groups(self):
        return list(dict.fromkeys(name.split("/")[0] for name in self.names))

    @property
    def best(self):
        return min(self.us, key=self.us.get)

    def __str__(self):
        return f"{self.key} {self.pass_} {self.arithmetic}"


@dataclass
class Table:
    device: str = ""  # none if nothing was measured
    launch_us: float = 0  # of an empty kernel
    geometries: dict = field(default_factory=dict)  # key -> Geometry
    lines: dict = field(default_factory=dict)  # line of the sweep -> labels in order
    rows: dict = field(default_factory=dict)  # row -> its precisions, as in "high,medium"
    calls: dict = field(default_factory=dict)  # Call.id -> Call

    def of_geometry(self, key):
        return [call for call in self.calls.values() if call.key == key]


def read(path):
    """The table in a file. Lines of several runs may stand behind each other; the least time of a row counts."""
    with open(path, encoding="utf-8") as file:
        return parse(file, path)


def choices(program):
    """The table without times that the program prints: what is chosen now."""
    done = subprocess.run([program, "--list", "--all-rows"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True, check=True)
    return parse(done.stdout.splitlines(), program)


def with_choices(table, choices):
    """Replaces the choices in the table. Returns the calls whose choice was not measured."""
    unknown = []
    for call in table.calls.values():
        if call.id in choices.calls:
            call.chosen = choices.calls[call.id].chosen
        if call.chosen not in call.us:
            unknown.append(call)
    return unknown


def parse(lines, name):
    table = Table()
    for number, line in enumerate(lines, 1):
        columns = line.rstrip("\n").split("\t")
        try:
            (_add_comment if line.startswith("#") else _add_time)(table, columns)
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise ValueError(f"{name}:{number}: not a line of bench_conv3d_sweep: {line.rstrip()}") from error
    return table


def _add_comment(table, columns):
    match columns:
        case ["# device", device, launch_us]:
            table.device, table.launch_us = device, float(launch_us)
        case ["# line", name, labels]:
            table.lines[name] = labels.split(";")
        case ["# row", row, precisions]:
            table.rows[row] = precisions
        case ["# geometry", names, shapes]:
            geometry = Geometry(names.split(";"), shapes)
            table.geometries[geometry.names[0]] = geometry


def _add_time(table, columns):
    if columns[0] not in PASSES:
        return _add_row(table, *columns[:7])
    pass_, dtype, *times = columns
    for time in times:
        row, us = time.split(" ")
        supports = [p for p in table.rows[row].split(",") if (p == "any") == (dtype != "f32")]
        _add_row(table, list(table.geometries)[-1], pass_, dtype, row, us, ",".join(supports), "-")


def _add_row(table, key, pass_, dtype, row, us, supports, chosen):
    for precision in supports.split(","):
        call = Call(key, table.geometries[key].names, pass_, dtype if precision == "any" else precision)
        call = table.calls.setdefault(call.id, call)
        call.us[row] = None if us == "-" else min(float(us), call.us.get(row, math.inf))
        if precision in chosen.split(","):
            call.chosen = row


def compact(tables):
    """The lines of measured.tsv: the least times of several tables of one device."""
    supports, times = {}, {}  # row -> precisions; (key, pass, dtype) -> row -> microseconds
    for call in (call for table in tables for call in table.calls.values()):
        dtype = call.arithmetic if call.arithmetic in DTYPES else "f32"
        for row, us in call.us.items():
            supports.setdefault(row, {})["any" if dtype != "f32" else call.arithmetic] = None
            best = times.setdefault((call.key, call.pass_, dtype), {})
            best[row] = min(us, best.get(row, math.inf))
    yield f"# device\t{tables[0].device}\t{tables[0].launch_us:g}"
    yield from (f"# line\t{name}\t{';'.join(labels)}" for name, labels in tables[0].lines.items())
    yield from (f"# row\t{row}\t{','.join(supports[row])}" for row in sorted(supports) if not row.endswith("_f16"))
    for key, geometry in tables[0].geometries.items():
        yield f"# geometry\t{';'.join(geometry.names)}\t{geometry.shapes}"
        for pass_ in PASSES:
            for dtype in DTYPES[:-1]:
                if rows := times.get((key, pass_, dtype)):
                    yield "\t".join([pass_, dtype, *(f"{row} {us:.4g}" for row, us in rows.items())])


if __name__ == "__main__":
    print("\n".join(compact([read(path) for path in sys.argv[1:]])))
