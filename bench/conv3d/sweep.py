"""Looks for jumps in the sweep that bench_conv3d_sweep measured: neighbouring geometries whose time per useful
operation differs by more than twice what their floors differ by. Prints them, and draws all lines as one SVG."""

import argparse
import itertools
import json
import math
import sys
from html import escape
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from vs_pytorch.problems import BYTES_PER_SECOND, FLOPS  # noqa: E402

LIMIT = 2.0  # a jump between neighbours is reported above this factor


def floor_ms(row, launch_ms):
    """The least possible time: the longest of the times of the operations, the bytes and an empty kernel."""
    return max(1e3 * row["operations"] / FLOPS[row["precision"]], 1e3 * row["bytes"] / BYTES_PER_SECOND,
               launch_ms)


def chosen_rows(sweep):
    return [row for row in sweep["rows"] if row.get("chosen", True)]


def lines(sweep):
    """The rows of each line, pass and precision, in the order of measuring: each is the neighbour of the next."""
    def key(row):
        return row["precision"], row["line"], row["pass"]

    order = {}
    for row in chosen_rows(sweep):
        order.setdefault(key(row), []).append(row)
    return order


def unexplained(a, b, launch_ms):
    """The factor by which the time per operation changes from a to b, over that of the floor per operation."""
    time = (b["ms"] / b["operations"]) / (a["ms"] / a["operations"])
    floor = (floor_ms(b, launch_ms) / b["operations"]) / (floor_ms(a, launch_ms) / a["operations"])
    if time < 1:
        time, floor = 1 / time, 1 / floor
    return time / max(floor, 1.0)


def cliffs(sweep):
    """[(key, slower row, faster row, factor)], the worst first."""
    found = []
    for key, rows in lines(sweep).items():
        for a, b in itertools.pairwise(rows):
            factor = unexplained(a, b, sweep["launch_ms"])
            if factor > LIMIT:
                slower = a["ms"] / a["operations"] > b["ms"] / b["operations"]
                found.append((key, *((a, b) if slower else (b, a)), factor))
    return sorted(found, key=lambda cliff: -cliff[-1])


def report(sweep, found):
    launch = sweep["launch_ms"]
    text = [f"{sweep['device']}: {sweep['geometries']} geometries, {len(sweep['rows'])} times; an empty kernel "
            f"takes {1e3 * launch:.1f} us"]

    def cell(row):
        return (f"{row['point']}: {1e3 * row['ms']:.1f} us, {row['operations'] / row['ms'] * 1e-9:.2f} TFLOP/s, "
                f"{100 * floor_ms(row, launch) / row['ms']:.0f} % of the floor ({row['kernel']})")

    for (precision, line, pass_), slow, fast, factor in found:
        text.append(f"{factor:5.1f}x  {precision}, {pass_}, {line}\n        {cell(slow)}\n        {cell(fast)}")
    text.append(f"{len(found)} jumps above {LIMIT:g}x that the floor does not explain")
    return "\n".join(text)


def worth(sweep):
    """What each kernel is worth where the table chooses it: {(precision, kernel): [time of the best other kernel /
    its time, or infinity where there is none]}. And the calls where another kernel is faster by a tenth:
    [(factor, chosen row, faster row)], the worst first."""
    calls = {}
    for row in sweep["rows"]:
        calls.setdefault((row["precision"], row["line"], row["point"], row["pass"]), []).append(row)
    ratios, slower = {}, []
    for (precision, *_), rows in calls.items():
        chosen = next(row for row in rows if row["chosen"])
        best = min((row for row in rows if not row["chosen"]), key=lambda row: row["ms"], default=None)
        ratio = best["ms"] / chosen["ms"] if best else math.inf
        ratios.setdefault((precision, chosen["kernel"]), []).append(ratio)
        if ratio < 1 / 1.1:
            slower.append((1 / ratio, chosen, best))
    return ratios, sorted(slower, key=lambda item: -item[0])


def report_worth(sweep):
    ratios, slower = worth(sweep)
    text = ["precision kernel                       calls  alone  best other kernel / it (geometric mean, largest)"]
    for (precision, kernel), all_ratios in sorted(ratios.items()):
        finite = [r for r in all_ratios if r < math.inf]
        mean = math.exp(sum(map(math.log, finite)) / len(finite)) if finite else math.nan
        text.append(f"{precision:9} {kernel:28} {len(all_ratios):5} {len(all_ratios) - len(finite):6}  {mean:.2f}"
                    f" {max(finite, default=math.nan):.2f}")
    text += [f"{factor:5.2f}x  {row['precision']}, {row['pass']}, {row['line']} {row['point']}: {row['kernel']} "
             f"{row['ms']:.4f} ms, {best['kernel']} {best['ms']:.4f} ms" for factor, row, best in slower]
    return "\n".join([*text, f"{len(slower)} calls for which another kernel is faster by a tenth"])


# The picture: a panel for each line of geometries, time over floor for each pass.

COLOURS = {"conv_transpose3d": "#1f6fb4", "conv3d": "#2a9d4e", "weight_grad": "#d9822b"}
COLUMNS, WIDTH, HEIGHT = 3, 440, 190  # of panels
LEFT, RIGHT, TOP, BOTTOM = 34, 8, 26, 44  # margins inside a panel
HEAD = 58


def svg(sweep, found, note=""):
    precisions = list(dict.fromkeys(r["precision"] for r in sweep["rows"]))
    panels = list(dict.fromkeys((r["precision"], r["line"]) for r in sweep["rows"]))
    by_key = lines(sweep)
    jumps = {(key, a["point"], b["point"]) for key, a, b, _ in found}
    worst = max(r["ms"] / floor_ms(r, sweep["launch_ms"]) for r in chosen_rows(sweep))
    decades = max(1, math.ceil(math.log10(worst)))
    rows = math.ceil(len(panels) / COLUMNS)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{COLUMNS * WIDTH}" height="{HEAD + rows * HEIGHT}" '
           'font-family="sans-serif" font-size="10">', '<rect width="100%" height="100%" fill="white"/>',
           f'<text x="10" y="20" font-size="15">conv3d family on {escape(sweep["device"])}, '
           f'{sweep["geometries"]} geometries: time / floor{escape(note and ", " + note)}</text>']
    x = 10
    for pass_, colour in COLOURS.items():
        out.append(f'<rect x="{x}" y="34" width="14" height="4" fill="{colour}"/>'
                   f'<text x="{x + 18}" y="41" font-size="12">{pass_}</text>')
        x += 150
    out.append(f'<rect x="{x}" y="34" width="14" height="4" fill="#d00000"/><text x="{x + 18}" y="41" '
               'font-size="12">a jump above 2x that the floor does not explain</text>')
    for i, (precision, line) in enumerate(panels):
        title = line if len(precisions) == 1 else f"{line} ({precision})"
        curves = {p: by_key[precision, line, p] for p in COLOURS if (precision, line, p) in by_key}
        out.append(f'<g transform="translate({i % COLUMNS * WIDTH},{HEAD + i // COLUMNS * HEIGHT})">')
        out += _panel(title, (precision, line), curves, decades, jumps, sweep["launch_ms"])
        out.append("</g>")
    return "\n".join([*out, "</svg>"]) + "\n"


def _panel(title, key, curves, decades, jumps, launch_ms):
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
    for i, row in enumerate(points):
        label = escape(row["point"].strip("()"))
        out.append(f'<text transform="translate({x(i) + 3:.1f},{TOP + inner_h + 6}) rotate(-60)" '
                   f'text-anchor="end" font-size="8">{label}</text>')
    for pass_, rows in curves.items():
        at = [(x(i), y(r["ms"] / floor_ms(r, launch_ms))) for i, r in enumerate(rows)]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in at)
        out.append(f'<polyline points="{path}" fill="none" stroke="{COLOURS[pass_]}" stroke-width="1.3"/>')
        for (a, b), row in zip(at, rows):
            out.append(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="1.8" fill="{COLOURS[pass_]}"><title>'
                       f'{escape(pass_)} {escape(row["shape"])}: {row["ms"]:.4f} ms, {escape(row["kernel"])}'
                       '</title></circle>')
        for i in range(len(rows) - 1):
            ends = rows[i]["point"], rows[i + 1]["point"]
            if ((*key, pass_), *ends) in jumps or ((*key, pass_), *reversed(ends)) in jumps:
                (a, b), (c, d) = at[i], at[i + 1]
                out.append(f'<line x1="{a:.1f}" y1="{b:.1f}" x2="{c:.1f}" y2="{d:.1f}" stroke="#d00000" '
                           'stroke-width="2.2"/>')
    return out


def main():
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("json", help="what bench_conv3d_sweep printed")
    a.add_argument("--svg", help="draw the sweep there")
    a.add_argument("--precision", help="look at this one only")
    a.add_argument("--table", action="store_true", help="say what each kernel is worth where it is chosen, of a "
                   "sweep with --all-kernels")
    a.add_argument("--note", default="", help="a few words for the picture's title, such as the commit")
    args = a.parse_args()
    with open(args.json, encoding="utf-8") as file:
        sweep = json.load(file)
    if args.precision:
        sweep["rows"] = [r for r in sweep["rows"] if r["precision"] == args.precision]
    if args.table:
        print(report_worth(sweep))
        return
    found = cliffs(sweep)
    print(report(sweep, found))
    if args.svg:
        Path(args.svg).write_text(svg(sweep, found, args.note), encoding="utf-8")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
