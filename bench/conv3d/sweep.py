#!/usr/bin/env python3
"""Looks for jumps in what bench_conv3d_sweep measured: neighbouring geometries whose time per useful operation differs
by more than twice what their floors differ by. Prints them, and draws all lines of geometries as one SVG."""

import argparse
import itertools
import math
import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path

import measured
from common import floors

LIMIT = 2.0  # a jump between neighbours is reported above this factor


@dataclass
class Point:
    """The time of a geometry by the row that the table chose, in one pass and arithmetic."""

    label: str
    us: float
    floor_us: float  # the longest of the times of the operations, the bytes and an empty kernel
    row: str
    geometry: measured.Geometry

    @property
    def per_operation(self):
        return self.us / self.geometry.operations

    @property
    def of_floor(self):
        return self.us / self.floor_us


def lines(table):
    """(arithmetic, line, pass) -> its points in order: each is the neighbour of the next."""
    keys = {name: key for key, geometry in table.geometries.items() for name in geometry.names}
    found = {}
    for name, labels in table.lines.items():
        for label in labels:
            key = keys.get(f"sweep/{name}/{label}")
            for call in table.of_geometry(key):
                if call.us.get(call.chosen) is None:
                    continue
                geometry = table.geometries[key]
                floor_us = 1e3 * floors.floor_ms(geometry.operations, geometry.elements, call.arithmetic)
                found.setdefault((call.arithmetic, name, call.pass_), []).append(
                    Point(label, call.us[call.chosen], max(floor_us, table.launch_us), call.chosen, geometry))
    return found


def unexplained(a, b):
    """The factor by which the time per operation changes from a to b, over that of the floor per operation."""
    time = b.per_operation / a.per_operation
    floor = time * a.of_floor / b.of_floor
    if time < 1:
        time, floor = 1 / time, 1 / floor
    return time / max(floor, 1.0)


def cliffs(found):
    """[(key of the line, slower point, faster point, factor)], the worst first."""
    jumps = []
    for key, points in found.items():
        for a, b in itertools.pairwise(points):
            factor = unexplained(a, b)
            if factor > LIMIT:
                slower = a.per_operation > b.per_operation
                jumps.append((key, *((a, b) if slower else (b, a)), factor))
    return sorted(jumps, key=lambda jump: -jump[-1])


def report(table, found, jumps):
    text = [f"{table.device}: {sum(map(len, found.values()))} times in {len(found)} lines; an empty kernel takes "
            f"{table.launch_us:.1f} us"]

    def cell(point):
        return (f"{point.label}: {point.us:.1f} us, {1e-6 * point.geometry.operations / point.us:.2f} TFLOP/s, "
                f"{100 / point.of_floor:.0f} % of the floor ({point.row})")

    for (arithmetic, line, pass_), slow, fast, factor in jumps:
        text.append(f"{factor:5.1f}x  {arithmetic}, {pass_}, {line}\n        {cell(slow)}\n        {cell(fast)}")
    text.append(f"{len(jumps)} jumps above {LIMIT:g}x that the floor does not explain")
    return "\n".join(text)


# The picture: a panel for each line of geometries, time over floor for each pass.

COLOURS = {"conv_transpose3d": "#1f6fb4", "conv3d": "#2a9d4e", "weight_grad": "#d9822b"}
COLUMNS, WIDTH, HEIGHT = 3, 440, 190  # of panels
LEFT, RIGHT, TOP, BOTTOM = 34, 8, 26, 44  # margins inside a panel
HEAD = 58


def svg(table, found, jumps, note=""):
    arithmetics = list(dict.fromkeys(arithmetic for arithmetic, _, _ in found))
    panels = sorted(dict.fromkeys((arithmetic, line) for arithmetic, line, _ in found),
                    key=lambda panel: arithmetics.index(panel[0]))
    ends = {(key, a.label, b.label) for key, a, b, _ in jumps}
    worst = max(point.of_floor for points in found.values() for point in points)
    decades = max(1, math.ceil(math.log10(worst)))
    rows = math.ceil(len(panels) / COLUMNS)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{COLUMNS * WIDTH}" height="{HEAD + rows * HEIGHT}" '
           'font-family="sans-serif" font-size="10">', '<rect width="100%" height="100%" fill="white"/>',
           f'<text x="10" y="20" font-size="15">conv3d family on {escape(table.device)}, '
           f'{sum(map(len, table.lines.values()))} geometries: time / floor{escape(note and ", " + note)}</text>']
    x = 10
    for pass_, colour in COLOURS.items():
        out.append(f'<rect x="{x}" y="34" width="14" height="4" fill="{colour}"/>'
                   f'<text x="{x + 18}" y="41" font-size="12">{pass_}</text>')
        x += 150
    out.append(f'<rect x="{x}" y="34" width="14" height="4" fill="#d00000"/><text x="{x + 18}" y="41" '
               'font-size="12">a jump above 2x that the floor does not explain</text>')
    for i, (arithmetic, line) in enumerate(panels):
        title = line if len(arithmetics) == 1 else f"{line} ({arithmetic})"
        curves = {p: found[arithmetic, line, p] for p in COLOURS if (arithmetic, line, p) in found}
        out.append(f'<g transform="translate({i % COLUMNS * WIDTH},{HEAD + i // COLUMNS * HEIGHT})">')
        out += _panel(title, (arithmetic, line), curves, decades, ends)
        out.append("</g>")
    return "\n".join([*out, "</svg>"]) + "\n"


def _panel(title, key, curves, decades, jumps):
    points = next(iter(curves.values()))
    inner_w, inner_h = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(i):
        return LEFT + (i + 0.5) * inner_w / len(points)

    def y(ratio):
        return TOP + inner_h * (1 - min(max(math.log10(ratio) / decades, -0.05), 1))

    out = [f'<text x="{LEFT}" y="{TOP - 8}" font-size="12">{escape(title)}</text>']
    for d in range(decades + 1):
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(10**d):.1f}" y2="{y(10**d):.1f}" '
                   f'stroke="#ddd"/><text x="{LEFT - 4}" y="{y(10**d) + 3:.1f}" text-anchor="end">{10**d}</text>')
    for i, point in enumerate(points):
        label = escape(point.label.strip("()"))
        out.append(f'<text transform="translate({x(i) + 3:.1f},{TOP + inner_h + 6}) rotate(-60)" '
                   f'text-anchor="end" font-size="8">{label}</text>')
    for pass_, points in curves.items():
        at = [(x(i), y(point.of_floor)) for i, point in enumerate(points)]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in at)
        out.append(f'<polyline points="{path}" fill="none" stroke="{COLOURS[pass_]}" stroke-width="1.3"/>')
        for (a, b), point in zip(at, points):
            out.append(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="1.8" fill="{COLOURS[pass_]}"><title>'
                       f'{escape(pass_)} {escape(point.geometry.shapes)}: {point.us:.1f} us, {escape(point.row)}'
                       '</title></circle>')
        for i in range(len(points) - 1):
            ends = points[i].label, points[i + 1].label
            if ((*key, pass_), *ends) in jumps or ((*key, pass_), *reversed(ends)) in jumps:
                (a, b), (c, d) = at[i], at[i + 1]
                out.append(f'<line x1="{a:.1f}" y1="{b:.1f}" x2="{c:.1f}" y2="{d:.1f}" stroke="#d00000" '
                           'stroke-width="2.2"/>')
    return out


def main():
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("measured", help="what bench_conv3d_sweep printed")
    a.add_argument("--program", help="asks this bench_conv3d_sweep for today's choices (default: those in `measured`)")
    a.add_argument("--svg", help="draw the sweep there")
    a.add_argument("--arithmetic", help="only these, such as high,bf16")
    a.add_argument("--note", default="", help="a few words for the picture's title, such as the commit")
    args = a.parse_args()
    table = measured.read(args.measured)
    if args.program:
        measured.with_choices(table, measured.choices(args.program))
    found = {key: points for key, points in lines(table).items()
             if not args.arithmetic or key[0] in args.arithmetic.split(",")}
    jumps = cliffs(found)
    print(report(table, found, jumps))
    if args.svg:
        Path(args.svg).write_text(svg(table, found, jumps, args.note), encoding="utf-8")
    sys.exit(1 if jumps else 0)


if __name__ == "__main__":
    main()
