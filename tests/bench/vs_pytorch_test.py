"""Tests of the parts of bench/vs_pytorch that need no torch: problems, floors, merging, tables, the command line.
CTest runs it. With torch, `python3 bench/vs_pytorch --device cpu --smoke` is a short run on the CPU."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

BENCH = Path(__file__).resolve().parent.parent.parent / "bench"
sys.path.insert(0, str(BENCH))
from common import table  # noqa: E402
from vs_pytorch import report  # noqa: E402
from vs_pytorch.problems import SEVEN, Problem, problems  # noqa: E402


def row(number=58, pass_="forward", precision="high", **changes):
    made = {"problem": number, "pass": pass_, "precision": precision, "floor_ms": 0.5, "ours": "ran",
            "ours_ms": 1.0, "call_ms": 8.0, "best": "transposed, NCDHW",
            "best_ms": 2.0, "ours_correct": True, "call_correct": True, "ours_error": 1e-4,
            "call_error": 2e-4, "ours_scaled_error": 1e-5, "call_scaled_error": 2e-5, "ours_scaled_rms": 3e-6,
            "call_scaled_rms": 4e-6}
    return {**made, **changes}


def run(*rows, **meta):
    made = {"commit": "c", "machine": "m", "driver": "d", "versions": "v", "device": "cuda", "threads": None,
            "smoke": False, "date": "today", "command": "x", "seed": 1}
    return {"meta": {**made, **meta}, "rows": list(rows)}


class Problems(unittest.TestCase):
    def test_operations_of_a_case_counted_by_hand(self):
        # Inputs 0, 1 and taps 0, 1, 2 at stride 2, padding 1 meet outputs -1..3; there are 0, 1, 2: 4 pairs an axis.
        p = Problem(0, 1, 2, 6, (2, 2, 2), (3, 3, 3), stride=2, padding=(1, 1, 1), groups=2)
        self.assertEqual(p.output, (3, 3, 3))
        self.assertEqual(p.flops(), 2 * 2 * 3 * 4**3)
        self.assertEqual(p.elements(), 2 * 8 + 2 * 3 * 27 + 6 * 27)
        self.assertEqual(p.least_step_bytes("high"), 2 * 4 * (p.elements() + 6))
        self.assertEqual(p.least_step_bytes("bf16"), 2 * 2 * (p.elements() + 6))

    def test_floor_is_the_larger_of_operations_and_bytes(self):
        by_number = {p.number: p for p in SEVEN}
        self.assertAlmostEqual(by_number[68].floor_ms("forward", "high"), 1e3 * 1288.49e9 / 356e12, places=3)
        self.assertAlmostEqual(by_number[73].floor_ms("forward", "high"), 1e3 * 1178.6e6 / 4.3e12, places=3)
        self.assertAlmostEqual(by_number[73].floor_ms("step", "bf16"), 1.5 * 1e3 * 1178.6e6 / 4.3e12, places=3)

    def test_the_list_of_the_header(self):
        self.assertEqual([p.number for p in SEVEN], [58, 61, 68, 70, 72, 73, 77])
        self.assertEqual(SEVEN[0], Problem(58, 16, 32, 16, (16, 32, 64), (3, 5, 7)))
        self.assertEqual(SEVEN[4], Problem(72, 8, 32, 32, (12, 24, 48), (3, 5, 7), stride=2, padding=(1, 2, 3),
                                           output_padding=1, groups=4))
        self.assertEqual(SEVEN[6], Problem(77, 16, 32, 64, (16, 32, 32), (3, 3, 3), stride=2, padding=(1, 1, 1),
                                           dilation=2))

    def test_batch_on_the_cpu(self):
        self.assertEqual([p.batch for p in problems("cpu", False)], [1, 1, 1, 1, 8, 1, 16])


class Merge(unittest.TestCase):
    def test_joins_rows(self):
        merged = report.merge([run(row(58)), run(row(61), date="tomorrow")])
        self.assertEqual([r["problem"] for r in merged["rows"]], [58, 61])
        self.assertEqual(merged["meta"]["date"], "today ; tomorrow")

    def test_refuses_what_does_not_belong_together(self):
        for name in report.SAME:
            with self.subTest(name), self.assertRaisesRegex(report.MergeError, f"{name} differs"):
                report.merge([run(row(58)), run(row(61), **{name: "other"})])

    def test_refuses_a_row_twice(self):
        with self.assertRaisesRegex(report.MergeError, "58, 'forward', 'high'"):
            report.merge([run(row(58)), run(row(58))])

    def test_refuses_commits_that_cannot_be_told_apart(self):
        for commit in (None, "c-dirty"):
            with self.subTest(commit), self.assertRaisesRegex(report.MergeError, "clean commit"):
                report.merge([run(row(58), commit=commit), run(row(61), commit=commit)])


class Tables(unittest.TestCase):
    def test_ratios_and_share_of_the_floor(self):
        self.assertEqual(report.cells(row(), 58)[1:],
                         ["1", "8", "2", "transposed, NCDHW", "2.00", "8.00", "0.5", "50 %",
                          "1.0e-04", "2.0e-04", "1.0e-05, 3.0e-06",
                          "2.0e-05, 4.0e-06"])

    def test_a_wrong_result_has_no_ratio(self):
        wrong = report.cells(row(ours_correct=False), 58)
        self.assertEqual((wrong[1], wrong[5], wrong[6]), ("1 WRONG", "-", "-"))
        self.assertIsNone(report.ratio(row(call_correct=False), "best"))

    def test_storage_that_the_build_lacks(self):
        absent = row(precision="bf16", ours="not in this build")
        del absent["ours_ms"], absent["ours_correct"]
        self.assertEqual(report.cells(absent, 58)[1:4], ["not in this build", "8", "2"])
        self.assertEqual(report.cells(absent, 58)[8], "-")

    def test_rows_not_run_and_failed(self):
        text = report.tables(run(row(58), {"problem": 61, "pass": "forward", "precision": "high",
                                           "failed": "out of memory"}), markdown=True)
        self.assertIn("| 61 | failed: out of memory |", text)
        self.assertIn("| 77 | not run |", text)
        self.assertIn("## high, grad-input: not run", text)

    def test_geometric_mean(self):
        text = report.tables(run(row(58, best_ms=2.0), row(61, best_ms=8.0), row(68, ours_correct=False)),
                             markdown=True)
        self.assertIn("| high | forward | 4.00 | 8.00 | - | 2 of 7 |", text)

    def test_highest_beside_the_best_tf32(self):
        high, highest = row(best_ms=3.0), row(precision="highest", best_ms=20.0)
        text = report.tables(run(high, highest), markdown=True)
        self.assertIn("| highest | forward | 20.00 | 8.00 | 3.00 | 1 of 7 |", text)
        text = report.tables(run({**high, "call_correct": False}, highest), markdown=True)
        self.assertIn("| highest | forward | 20.00 | 8.00 | - | 1 of 7 |", text)

    def test_memory_of_a_step(self):
        step = row(pass_="step", least_bytes=4e6, operand_bytes=2e6, ours_peak_bytes=2e6, call_peak_bytes=5e6)
        passes = [row(pass_="forward", ours_peak_bytes=3e6, result_bytes=2.5e6),
                  row(pass_="grad-weight", ours_peak_bytes=4e6, result_bytes=1e6)]
        self.assertIn("| 58 | high | 0.5 | - | 3.0 | 4.0 | 4.0 | 0.0 | 7.0 |",
                      report.tables(run(step, *passes), markdown=True))
        step["ours_peak_bytes"] = 2e6 + 33.7e6
        self.assertIn("| 33.7 | 7.0 |", report.tables(run(step), markdown=True))


class CommandLine(unittest.TestCase):
    def call(self, *arguments):
        return subprocess.run([sys.executable, str(BENCH / "vs_pytorch"), *arguments], capture_output=True,
                              text=True, check=False)

    def test_merge(self):
        with tempfile.TemporaryDirectory() as folder:
            paths = [f"{folder}/{n}.json" for n in (58, 61)]
            for path, number in zip(paths, (58, 61)):
                table.save(run(row(number)), path)
            done = self.call("--merge", *paths, "--json", f"{folder}/all.json")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(len(report.load(f"{folder}/all.json")["rows"]), 2)
            refused = self.call("--merge", paths[0], paths[0])
            self.assertNotEqual(refused.returncode, 0)
            self.assertIn("more than once", refused.stderr)

    def test_wrong_rows_fail_the_command(self):
        with tempfile.TemporaryDirectory() as folder:
            wrong = run(row(ours_correct=False))
            table.save(wrong, f"{folder}/wrong.json")
            self.assertNotEqual(self.call("--merge", f"{folder}/wrong.json").returncode, 0)

    def test_unknown_names_are_refused(self):
        refused = self.call("--problems", "58,59")
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("got 59, allowed are 58,61", refused.stderr)


if __name__ == "__main__":
    unittest.main()
