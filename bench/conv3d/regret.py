#!/usr/bin/env python3
"""Judges the choice of convolution kernels by the measured times of all rows of the table.

    bench_conv3d_sweep --all-rows > measured.tsv          on a GPU
    regret.py measured.tsv --program bench_conv3d_sweep   needs no GPU; exit status 1 if a limit is exceeded

The regret of a call is the time of the chosen row over that of the best one. Means are geometric. --rows adds what
every row is worth: by which factor the best of the other rows is slower, in the calls where the row is best or
chosen. --smallest adds the order in which rows can go: each time the one whose loss costs all calls least."""

import argparse
import math
import re
import sys
import textwrap

import measured

ELSEWHERE = ("level2", "sweep")  # groups that are not level 1 or the layers of a network
EARNS_MEAN, EARNS_WORST = 1.05, 1.15  # a row stays if one group, or one call, outside these groups loses so much


def mean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan


def is_main(call):
    return any(group not in ELSEWHERE for group in call.groups)


def by_group(calls):
    """group -> its calls, of all groups in order, "all" last."""
    groups = {}
    for call in calls:
        for group in call.groups:
            groups.setdefault(group, []).append(call)
    return {**groups, "all": list(calls)}


def regret(call):
    return call.us[call.chosen] / call.us[call.best]


def layout(rows):
    """Text columns, the first and the last left-aligned; lines of at most 120 characters."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    text = []
    for row in rows:
        cells = [c.ljust(w) if i in (0, len(row) - 1) else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))]
        text.append("  ".join(cells).rstrip()[:120])
    return text


def report(calls, count):
    """Regret by group, and the calls with the largest."""
    rows = [("group", "calls", "mean", "worst", "worst call")]
    for group, members in by_group(calls).items():
        worst = max(members, key=regret)
        rows.append((group, str(len(members)), f"{mean(list(map(regret, members))):.3f}", f"{regret(worst):.2f}",
                     str(worst)))
    text = ["Time of the chosen row / time of the best row", *layout(rows)]
    worst = sorted((c for c in calls if regret(c) > 1.05), key=lambda c: -regret(c))[:count]
    if worst:
        rows = [("regret", "chosen us", "best us", "chosen", "best", "call")]
        rows += [(f"{regret(c):.2f}", f"{c.us[c.chosen]:.5g}", f"{c.us[c.best]:.5g}", c.chosen, c.best, str(c))
                 for c in worst]
        text += ["", "The largest above 1.05", *layout(rows)]
    return text


def broken_limits(calls, limits):
    """Sentences about the limits that do not hold."""
    found = []
    if (all_mean := mean(list(map(regret, calls)))) > limits.mean:
        found.append(f"mean {all_mean:.3f}, allowed is {limits.mean:g}")
    for call in sorted(calls, key=lambda c: -regret(c)):
        limit = limits.worst if is_main(call) else limits.worst_elsewhere
        if regret(call) > limit:
            found.append(f"{call}: {regret(call):.2f}, allowed is {limit:g}")
    return found


# ---- What rows are worth ---------------------------------------------------------------------------------------------


def family(row):
    """The name without the numbers that it multiplies: all rows of a family share a kernel."""
    return re.sub(r"_(bf16_of_f32|bf16|f16|tf32x3|f16x3|bf16x3|bf16x6)$", "", row)


def merged(calls, families):
    """[(call, name -> the least time of its rows, name of the chosen row)]."""
    found = []
    for call in calls:
        us = {}
        for row, time in call.us.items():
            name = family(row) if families else row
            us[name] = min(time, us.get(name, math.inf))
        found.append((call, us, family(call.chosen) if families else call.chosen))
    return found


def losses(items, name):
    """[(call, loss without the row)] where it is best or chosen; infinity where no other row was measured."""
    found = []
    for call, us, chosen in items:
        others = [time for other, time in us.items() if other != name]
        if name in us and (chosen == name or us[name] <= min(others, default=math.inf)):
            found.append((call, max(1, min(others, default=math.inf) / min(us.values()))))
    return found


def report_rows(calls, families):
    items = merged(calls, families)
    names = sorted({name for _, us, _ in items for name in us})
    rows = [("row", "calls", "alone", "mean", "in group", "mean", "worst", "earns", "worst call")]
    for name in names:
        lost = losses(items, name)
        finite = {call.id: loss for call, loss in lost if loss < math.inf}
        groups = by_group([call for call, _ in lost if call.id in finite])
        means = {group: mean([finite[c.id] for c in members]) for group, members in groups.items() if members}
        main = {group: m for group, m in means.items() if group not in (*ELSEWHERE, "all")}
        group = max(main, key=main.get, default="-")
        # The call that decides: of level 1 and networks if there are some.
        members = [(call, loss) for call, loss in lost if call.id in finite]
        worst = max([m for m in members if is_main(m[0])] or members, key=lambda m: m[1], default=None)
        alone = [call for call, loss in lost if loss == math.inf]
        earns = (any(is_main(call) for call in alone) or main.get(group, 1) >= EARNS_MEAN
                 or bool(worst and is_main(worst[0]) and worst[1] >= EARNS_WORST))
        rows.append((name, str(len(lost)), str(len(alone)), f"{means.get('all', math.nan):.2f}", group,
                     f"{main.get(group, math.nan):.2f}", f"{worst[1]:.2f}" if worst else "-",
                     "yes" if earns else "-", str(worst[0]) if worst else "-"))
    note = ("What the best of the other rows loses, where a row is best or chosen (alone: no other was measured; "
            f"earns: a group of level 1 or a network loses {EARNS_MEAN:g} in the mean, or a call {EARNS_WORST:g}, or has "
            "no other row)")
    return ["", *textwrap.wrap(note, 120), *layout(rows)]


def eliminated(calls, families, kept=("direct",)):
    """[(row, mean, worst of level 1 and networks, worst elsewhere)]: greedily, the row whose loss costs least goes
    first. A row without which a call has none stays."""
    items = merged(calls, families)
    left = [(call, dict(us), min(us.values())) for call, us, _ in items]
    names = {name for _, us, _ in left for name in us} - set(kept)
    steps = []
    while names:
        costs = dict.fromkeys(names, 0.0)  # sums of logarithms
        for _, us, _ in left:
            first, second = sorted(us, key=us.get)[:2] if len(us) > 1 else (min(us), None)
            if first in costs:
                costs[first] += math.log(us[second] / us[first]) if second else math.inf
        name = min(sorted(costs), key=costs.get)
        if costs[name] == math.inf:
            break
        names.remove(name)
        for _, us, _ in left:
            us.pop(name, None)
        lost = [(call, min(us.values()) / best) for call, us, best in left]
        steps.append((name, mean([loss for _, loss in lost]),
                      max((loss for call, loss in lost if is_main(call)), default=1),
                      max((loss for call, loss in lost if not is_main(call)), default=1)))
    return steps, sorted(names)


def report_smallest(calls, families, limit):
    steps, stay = eliminated(calls, families)
    rows = [("without also", "mean", "worst of level 1, networks", "elsewhere")]
    rows += [(name, f"{m:.3f}", f"{main:.2f}", f"{other:.2f}") for name, m, main, other in steps]
    within = next((i for i, step in enumerate(steps) if step[1] > limit), len(steps))
    needed = sorted([step[0] for step in steps[within:]] + stay)
    return ["", "Rows that can go, one after the other, with an ideal choice among the rest", *layout(rows), "",
            *textwrap.wrap(f"Needed for a mean loss of at most {limit:g}, besides direct: {len(needed)}: "
                           + ", ".join(needed), 120)]


def arguments():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("measured", help="what bench_conv3d_sweep --all-rows printed")
    a.add_argument("--program", help="asks this bench_conv3d_sweep for today's choices (default: those in `measured`)")
    a.add_argument("--mean", type=float, default=1.02, help="limit of the mean over all calls (%(default)s)")
    a.add_argument("--worst", type=float, default=1.25, help="limit of level 1 and networks (%(default)s)")
    a.add_argument("--worst-elsewhere", type=float, default=1.6, help="limit of the other calls (%(default)s)")
    a.add_argument("--count", type=int, default=20, help="how many calls to list (%(default)s)")
    a.add_argument("--arithmetic", help="only these, such as highest,bf16")
    a.add_argument("--rows", action="store_true", help="what every row is worth")
    a.add_argument("--smallest", type=float, metavar="LOSS", help="the smallest set of rows for a mean loss, as 1.02")
    a.add_argument("--families", action="store_true", help="take rows that share a kernel as one")
    return a.parse_args()


def main():
    args = arguments()
    table = measured.read(args.measured)
    unknown = measured.with_choices(table, measured.choices(args.program)) if args.program else []
    calls = [call for call in table.calls.values() if call.chosen in call.us and None not in call.us.values()
             and (not args.arithmetic or call.arithmetic in args.arithmetic.split(","))]
    if not calls:
        sys.exit(f"{args.measured}: no times")
    print(f"{table.device}: {len(calls)} calls, {sum(len(call.us) for call in calls)} times")
    text = report(calls, args.count)
    if args.rows:
        text += report_rows(calls, args.families)
    if args.smallest:
        text += report_smallest(calls, args.families, args.smallest)
    broken = [f"{call}: the chosen row {call.chosen} was not measured" for call in unknown]
    broken += broken_limits(calls, args)
    more = [f"and {len(broken) - args.count} more"] if len(broken) > args.count else []
    print("\n".join([*text, "", *broken[:args.count], *more, f"{len(broken)} limits broken"]))
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
