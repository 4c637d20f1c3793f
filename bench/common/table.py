"""Tables as text, and JSON files. Needs no torch."""

import json
import math
import os


def save(run, path):
    """Writes `run` as JSON. The file is replaced in one step, because a run calls this after every row."""
    with open(path + ".part", "w", encoding="utf-8") as file:
        json.dump(run, file, indent=1)
    os.replace(path + ".part", path)


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def fastest(times):
    """The name and the value of the smallest time; "-" and None if there are no times."""
    name = min(times, key=times.get, default="-")
    return name, times.get(name)


def layout(rows, markdown):
    """The lines of a table whose first row is its head."""
    if markdown:
        lines = ["| " + " | ".join(r) + " |" for r in rows]
        return [lines[0], "|" + "---|" * len(rows[0]), *lines[1:]]
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    return ["  ".join(c.ljust(w) for c, w in zip(r, widths)).rstrip() for r in rows]


def formatted(value, form=".3g"):
    return "-" if value is None else format(value, form)


def describe(meta, markdown):
    """The lines that say what was measured, where and how."""
    lines = [f"{name}: {meta[name]}" for name in ("commit", "machine", "driver", "versions", "date", "command",
                                                  "seed", "threads") if meta.get(name) is not None]
    return ["- " + line for line in lines] if markdown else lines
