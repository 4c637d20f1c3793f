"""Reads what bench_conv3d_sweep prints."""

import ast
import math
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from common import floors  # noqa: E402


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


def parse(lines, name):
    table = Table()
    for number, line in enumerate(lines, 1):
        columns = line.rstrip("\n").split("\t")
        try:
            (_add_comment if line.startswith("#") else _add_time)(table, columns)
        except (ValueError, KeyError) as error:
            raise ValueError(f"{name}:{number}: not a line of bench_conv3d_sweep: {line.rstrip()}") from error
    return table


def _add_comment(table, columns):
    match columns:
        case ["# device", device, launch_us]:
            table.device, table.launch_us = device, float(launch_us)
        case ["# line", name, labels]:
            table.lines[name] = labels.split(";")
        case ["# geometry", names, shapes]:
            geometry = Geometry(names.split(";"), shapes)
            table.geometries[geometry.names[0]] = geometry


def _add_time(table, columns):
    key, pass_, dtype, row, us, takes, chosen = columns
    for precision in takes.split(","):
        call = Call(key, table.geometries[key].names, pass_, dtype if precision == "any" else precision)
        call = table.calls.setdefault(call.id, call)
        call.us[row] = None if us == "-" else min(float(us), call.us.get(row, math.inf))
        if precision in chosen.split(","):
            call.chosen = row
