"""Tests of bench/conv3d/sweep.py: floors, jumps, the picture and the command line. CTest runs it."""

import copy
import json
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent.parent.parent / "bench/conv3d/sweep.py"
sys.path.insert(0, str(SCRIPT.parent))
import sweep as reader  # noqa: E402


def row(point, ms, operations=1e9, bytes_=1e6, **changes):
    made = {"line": "volume", "point": point, "pass": "conv3d", "precision": "high", "kernel": "k", "ms": ms,
            "operations": operations, "bytes": bytes_, "shape": "(1,1)"}
    return {**made, **changes}


def sweep(*rows):
    return {"device": "a GPU", "geometries": len(rows), "launch_ms": 0.002, "rows": list(rows)}


class Worth(unittest.TestCase):
    def test_a_kernel_is_compared_with_the_best_other_one_of_its_call(self):
        ratios, slower = reader.worth(sweep(
            row("1", 1, kernel="a", chosen=True), row("1", 2, kernel="b", chosen=False),
            row("1", 3, kernel="c", chosen=False), row("2", 4, kernel="a", chosen=True),
            row("2", 2, kernel="b", chosen=False), row("3", 1, kernel="a", chosen=True)))
        self.assertEqual(ratios, {("high", "a"): [2, 0.5, float("inf")]})
        self.assertEqual([(factor, a["point"], b["kernel"]) for factor, a, b in slower], [(2, "2", "b")])

    def test_the_report_says_both(self):
        text = reader.report_worth(sweep(row("1", 4, kernel="a", chosen=True),
                                         row("1", 1, kernel="b", chosen=False)))
        self.assertIn("1 calls for which another kernel is faster by a tenth", text)
        self.assertIn("0.25", text)


class Cliffs(unittest.TestCase):
    def test_floor_is_the_largest_of_operations_bytes_and_launch(self):
        self.assertAlmostEqual(reader.floor_ms(row("1", 1, operations=356e9), 0.002), 1)
        self.assertAlmostEqual(reader.floor_ms(row("1", 1, bytes_=4.3e9), 0.002), 1)
        self.assertAlmostEqual(reader.floor_ms(row("1", 1, operations=1, bytes_=1), 0.002), 0.002)

    def test_a_jump_up_and_one_down(self):
        found = reader.cliffs(sweep(row("1", 1), row("2", 2.5), row("3", 1.1)))
        self.assertEqual([(a["point"], b["point"]) for _, a, b, _ in found], [("2", "1"), ("2", "3")])
        self.assertAlmostEqual(found[0][-1], 2.5)

    def test_only_the_chosen_kernel_is_looked_at(self):
        self.assertEqual(reader.cliffs(sweep(row("1", 1, chosen=True), row("1", 9, chosen=False),
                                             row("2", 1, chosen=True))), [])

    def test_work_that_grows_is_no_jump(self):
        self.assertEqual(reader.cliffs(sweep(row("1", 1), row("2", 8, operations=8e9))), [])

    def test_what_the_floor_explains_is_no_jump(self):
        # Four times fewer operations on the same bytes: at the limit of memory the time stays.
        a, b = row("1", 1, operations=4e9, bytes_=4.3e9), row("2", 1, operations=1e9, bytes_=4.3e9)
        self.assertEqual(reader.cliffs(sweep(a, b)), [])
        self.assertEqual(len(reader.cliffs(sweep(a, {**b, "ms": 2.1}))), 1)

    def test_only_neighbours_are_compared(self):
        for other in ({"pass": "weight_grad"}, {"line": "batch"}, {"precision": "highest"}):
            self.assertEqual(reader.cliffs(sweep(row("1", 1), row("2", 9, **other))), [])


class Picture(unittest.TestCase):
    def test_is_an_svg_with_the_jumps_in_red(self):
        measured = sweep(row("1", 1), row("2", 3), row("3", 3))
        text = reader.svg(measured, reader.cliffs(measured), "a<b")
        xml.etree.ElementTree.fromstring(text)
        self.assertIn("time / floor, a&lt;b", text)
        self.assertEqual(text.count("<circle"), 3)
        self.assertEqual(text.count('stroke="#d00000"'), 1)


class CommandLine(unittest.TestCase):
    def call(self, measured, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "sweep.json"
            path.write_text(json.dumps(measured), encoding="utf-8")
            return subprocess.run([sys.executable, str(SCRIPT), str(path), *arguments],
                                  capture_output=True, text=True, check=False)

    def test_a_jump_fails_the_command(self):
        smooth = sweep(row("1", 1), row("2", 1))
        self.assertEqual(self.call(smooth).returncode, 0)
        steep = copy.deepcopy(smooth)
        steep["rows"][1]["ms"] = 4
        done = self.call(steep)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("4.0x  high, conv3d, volume", done.stdout)
        self.assertEqual(self.call(steep, "--precision", "highest").returncode, 0)


if __name__ == "__main__":
    unittest.main()
