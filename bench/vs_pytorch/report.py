"""Runs as JSON, their merging, and the tables. Needs no torch."""

import json

from common.table import describe, formatted, geometric_mean, layout

from .problems import PASSES, PRECISIONS, SEVEN

SAME = ("commit", "machine", "driver", "versions", "device", "threads", "smoke")  # must agree in runs that are merged


class MergeError(ValueError):
    pass


def key(row):
    return row["problem"], row["pass"], row["precision"]


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def merge(runs):
    """Joins runs of one commit on one kind of machine. Raises MergeError for others, and for a row measured twice."""
    first = runs[0]["meta"]
    for run in runs[1:]:
        for name in SAME:
            if run["meta"].get(name) != first.get(name):
                raise MergeError(f"merge: {name} differs: {first.get(name)!r} and {run['meta'].get(name)!r}; "
                                 "only runs that agree in it may be joined")
    if first.get("commit") is None or str(first["commit"]).endswith("-dirty"):
        if len(runs) > 1:
            raise MergeError(f"merge: commit is {first.get('commit')!r}; only runs of a clean commit may be "
                             "joined")
    rows = [row for run in runs for row in run["rows"]]
    keys = [key(row) for row in rows]
    twice = sorted({k for k in keys if keys.count(k) > 1})
    if twice:
        raise MergeError(f"merge: measured more than once: {twice}; drop all but one")

    def joined(name):
        return " ; ".join(str(run["meta"][name]) for run in runs)

    return {"meta": {**first, "date": joined("date"), "command": joined("command"), "seed": joined("seed")},
            "rows": rows}


def ratio(row, rival):
    """How many times faster voxgrad is; None unless both ran and are right."""
    ran = row.get("ours") == "ran" and row.get("ours_correct") and row.get("call_correct")
    return row[rival + "_ms"] / row["ours_ms"] if ran else None


HEAD = ("#", "ours ms", "call ms", "best ms", "best is", "best/ours", "call/ours", "floor ms", "of floor",
        "error ours", "error PyTorch", "scaled ours: max, rms", "scaled PyTorch: max, rms")


def tf32_ratio(rows, row):
    """PyTorch's best TF32 time over ours; None without a row of `high` for the problem and pass."""
    high = rows.get((row["problem"], row["pass"], "high"))
    if high is None or "failed" in high or not high["call_correct"] or ratio(row, "best") is None:
        return None
    return high["best_ms"] / row["ours_ms"]


def cells(row, number):
    """One row of the table; `row` is None if it was not run."""
    if row is None:
        return [str(number), "not run"] + [""] * (len(HEAD) - 2)
    if "failed" in row:
        return [str(number), "failed: " + row["failed"]] + [""] * (len(HEAD) - 2)
    ours, ran = row["ours"], row["ours"] == "ran"
    if ran:
        ours = formatted(row["ours_ms"]) + ("" if row["ours_correct"] else " WRONG")
    floor = row.get("floor_ms")

    def scaled(who):
        return ", ".join(formatted(row.get(who + name), ".1e") for name in ("_scaled_error", "_scaled_rms"))

    return [str(number), ours, formatted(row["call_ms"]) + ("" if row["call_correct"] else " WRONG"),
            formatted(row["best_ms"]), row["best"], formatted(ratio(row, "best"), ".2f"),
            formatted(ratio(row, "call"), ".2f"), formatted(floor),
            f"{100 * floor / row['ours_ms']:.0f} %" if floor and ran else "-",
            formatted(row.get("ours_error"), ".1e"), formatted(row.get("call_error"), ".1e"), scaled("ours"),
            scaled("call")]


def tables(run, markdown=False, numbers=tuple(p.number for p in SEVEN)):
    """All tables as text: one per precision and pass, memory, and the geometric means."""
    meta, rows = run["meta"], {key(row): row for row in run["rows"]}
    lines = describe(meta, markdown)
    title = "## " if markdown else "== "
    for precision in PRECISIONS:
        for pass_ in PASSES:
            found = [rows.get((number, pass_, precision)) for number in numbers]
            if not any(found):
                lines += ["", f"{title}{precision}, {pass_}: not run"]
                continue
            lines += ["", f"{title}{precision}, {pass_}", ""]
            lines += layout([HEAD, *(cells(row, n) for row, n in zip(found, numbers))], markdown)
    lines += _memory(rows, numbers, title, markdown)
    lines += ["", title + "Geometric means of the rows with right results", ""]
    return "\n".join(lines + layout(_means(rows, numbers), markdown))


def _means(rows, numbers):
    """A line for each precision and pass that ran."""
    table = [("precision", "pass", "best/ours", "call/ours", "TF32 best/ours", "rows right")]

    def mean(values):
        return f"{geometric_mean(values):.2f}" if values else "-"

    for precision in PRECISIONS:
        for pass_ in PASSES:
            found = [r for r in (rows.get((n, pass_, precision)) for n in numbers) if r and "failed" not in r]
            right = [r for r in found if ratio(r, "best")]
            if not right:
                continue
            tf32 = [v for v in (tf32_ratio(rows, r) for r in right) if v] if precision != "high" else []
            table.append((precision, pass_, mean([ratio(r, "best") for r in right]),
                          mean([ratio(r, "call") for r in right]), mean(tf32), f"{len(right)} of {len(numbers)}"))
    return table


def _memory(rows, numbers, title, markdown):
    """Device memory of each pass in addition to its results; and the peak of a training step, next to the least
    possible, that of the operands, the output and their gradients."""
    table = [("#", "precision", *(f"{p}: workspace MB" for p in PASSES[:3]), "step: least MB", "ours MB",
              "over MB", "PyTorch call MB")]
    for precision in PRECISIONS:
        for number in numbers:
            found = [rows.get((number, pass_, precision), {}) for pass_ in PASSES]
            if not any(r.get("ours_peak_bytes") is not None for r in found):
                continue
            cells_ = [_workspace(r) for r in found[:3]]
            table.append((str(number), precision, *cells_, *_step_cells(found[3])))
    if len(table) == 1:
        return []
    return ["", title + "Device memory: workspace of a pass; peak of a training step, operands included", "",
            *layout(table, markdown)]


def _workspace(row):
    if row.get("ours_peak_bytes") is None or row.get("result_bytes") is None:
        return "-"
    return f"{(row['ours_peak_bytes'] - row['result_bytes']) / 1e6:.1f}"


def _step_cells(row):
    if row.get("ours_peak_bytes") is None:
        return ("-",) * 4
    operands, least = row["operand_bytes"], row["least_bytes"]
    ours = operands + row["ours_peak_bytes"]
    return tuple(f"{b / 1e6:.1f}" for b in (least, ours, ours - least, operands + row["call_peak_bytes"]))
