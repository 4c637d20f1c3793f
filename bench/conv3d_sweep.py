#!/usr/bin/env python3
"""Looks for cliffs in the sweep that bench_conv3d_sweep measured: neighbouring geometries whose time per useful
operation differs by more than twice what their floors differ by. Prints them, and draws all lines as one SVG."""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from conv3d_sweep import cliffs, picture  # noqa: E402


def main():
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("json", help="what bench_conv3d_sweep printed")
    a.add_argument("--svg", help="draw the sweep there")
    a.add_argument("--precision", help="look at this one only")
    a.add_argument("--note", default="", help="a few words for the picture's title, such as the commit")
    args = a.parse_args()
    with open(args.json, encoding="utf-8") as file:
        sweep = json.load(file)
    if args.precision:
        sweep["rows"] = [r for r in sweep["rows"] if r["precision"] == args.precision]
    found = cliffs.cliffs(sweep)
    print(cliffs.report(sweep, found))
    if args.svg:
        Path(args.svg).write_text(picture.svg(sweep, found, args.note), encoding="utf-8")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
