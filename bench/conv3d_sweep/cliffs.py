"""Floors of a sweep's rows, and the jumps between neighbours that they do not explain."""

import itertools

# Ceilings of an H200, as in bench/vs_pytorch/problems.py. `highest` stands against the TF32 ceiling.
FLOPS = {"highest": 356e12, "high": 356e12, "medium": 672e12}
BYTES_PER_SECOND = 4.3e12
LIMIT = 2.0


def floor_ms(row, launch_ms):
    """The largest of what the operations, the bytes and an empty kernel take."""
    return max(1e3 * row["operations"] / FLOPS[row["precision"]], 1e3 * row["bytes"] / BYTES_PER_SECOND,
               launch_ms)


def lines(sweep):
    """Rows of one line, pass and precision, in the order of measuring: each is the next one's neighbour."""
    def key(row):
        return row["precision"], row["line"], row["pass"]

    order = {}
    for row in sweep["rows"]:
        order.setdefault(key(row), []).append(row)
    return order


def unexplained(a, b, launch_ms):
    """How much more the time per operation changes from a to b than the floor per operation does; 1 where it
    changes less."""
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
