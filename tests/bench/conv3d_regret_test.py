"""Tests of bench/conv3d/measured.py and regret.py on a small made-up table. CTest runs it."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent.parent / "bench/conv3d"
sys.path.insert(0, str(FOLDER))
import measured  # noqa: E402
import regret  # noqa: E402

SHAPES = "(2,32,8,8,8) (2,32,8,8,8) (32,32,3,3,3) (1,1,1) (1,1,1) (1,1,1) 1"
HEAD = ["# device\ta GPU\t2.5", "# line\tvolume\t8;9", f"# geometry\tlevel1/58;unet64/conv\t{SHAPES}",
        f"# geometry\tsweep/volume/8\t{SHAPES}"]


def line(key, row, us, takes="any", chosen="-", pass_="conv3d", dtype="bf16"):
    return "\t".join([key, pass_, dtype, row, str(us), takes, chosen])


def read(*lines):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "measured.tsv"
        path.write_text("\n".join([*HEAD, *lines]) + "\n", encoding="utf-8")
        return measured.read(path)


# Level 1 and a network: mma_bf16 is chosen, 1.5 times as slow as flat_bf16. The sweep: flat_bf16 is chosen and best.
TABLE = [line("level1/58", "flat_bf16", 20), line("level1/58", "mma_bf16", 30, chosen="any"),
         line("level1/58", "direct", 80), line("sweep/volume/8", "flat_bf16", 10, chosen="any"),
         line("sweep/volume/8", "mma_bf16", 12), line("sweep/volume/8", "direct", 40)]


class Reading(unittest.TestCase):
    def test_head(self):
        table = read()
        self.assertEqual((table.device, table.launch_us, table.lines), ("a GPU", 2.5, {"volume": ["8", "9"]}))
        self.assertEqual(table.geometries["level1/58"], measured.Geometry(["level1/58", "unet64/conv"], SHAPES))

    def test_operations_and_elements(self):
        # Inputs 0, 1 and taps 0, 1, 2 at stride 2, padding 1 meet outputs 0, 1, 2 in 4 pairs an axis.
        tiny = measured.Geometry([], "(1,6,3,3,3) (1,2,2,2,2) (2,3,3,3,3) (2,2,2) (1,1,1) (1,1,1) 2")
        self.assertEqual((tiny.operations, tiny.elements), (2 * 4**3 * 2 * 3, 6 * 27 + 2 * 8 + 2 * 81))

    def test_a_line_of_f32_is_a_time_at_every_precision_that_the_row_takes(self):
        calls = read(line("level1/58", "mma", 30, "high,medium", "medium", dtype="f32"),
                     line("level1/58", "flat", 20, "high", "high", dtype="f32")).calls
        self.assertEqual({id_[2]: (call.us, call.chosen) for id_, call in calls.items()},
                         {"high": ({"mma": 30, "flat": 20}, "flat"), "medium": ({"mma": 30}, "mma")})

    def test_a_call_has_the_groups_of_all_its_names(self):
        call, = read(line("level1/58", "mma", 30, chosen="any")).calls.values()
        self.assertEqual(call.groups, ["level1", "unet64"])
        self.assertEqual(call.arithmetic, "bf16")

    def test_the_least_time_of_several_runs_counts(self):
        call, = read(*(line("level1/58", "mma", us) for us in (30, 20, 25))).calls.values()
        self.assertEqual(call.us, {"mma": 20})

    def test_a_list_has_no_times(self):
        call, = read(line("level1/58", "mma", "-", chosen="any")).calls.values()
        self.assertEqual(call.us, {"mma": None})

    def test_other_lines_are_refused(self):
        for wrong in ("nonsense", line("level1/59", "mma", 30), line("level1/58", "mma", "fast")):
            with self.assertRaisesRegex(ValueError, "measured.tsv:5: not a line of bench_conv3d_sweep"):
                read(wrong)


class Regret(unittest.TestCase):
    def calls(self):
        return list(read(*TABLE).calls.values())

    def test_by_group(self):
        text = "\n".join(regret.report(self.calls(), 5))
        for row in ("level1 +1 +1.500 +1.50 +level1/58 conv3d bf16", "unet64 +1 +1.500", "sweep +1 +1.000 +1.00",
                    r"all +2 +1.225 +1.50", "1.50 +30 +20 +mma_bf16 +flat_bf16 +level1/58 conv3d bf16"):
            self.assertRegex(text, row)
        self.assertLessEqual(max(map(len, text.split("\n"))), 120)

    def test_choices_of_today_replace_those_of_the_table(self):
        table = read(*TABLE)
        today = read(line("level1/58", "flat_bf16", "-", chosen="any"),
                     line("sweep/volume/8", "dense_bf16", "-", chosen="any"))
        unknown = measured.with_choices(table, today)
        self.assertEqual([call.chosen for call in table.calls.values()], ["flat_bf16", "dense_bf16"])
        self.assertEqual([call.key for call in unknown], ["sweep/volume/8"])

    def test_what_a_row_is_worth(self):
        lost = regret.losses(regret.merged(self.calls(), False), "flat_bf16")
        self.assertEqual([loss for _, loss in lost], [1.5, 1.2])
        lost = regret.losses(regret.merged(self.calls(), False), "mma_bf16")  # chosen, but not best
        self.assertEqual([loss for _, loss in lost], [1])
        text = "\n".join(regret.report_rows(self.calls(), False))
        self.assertRegex(text, "flat_bf16 +2 +0 +1.34 +level1 +1.50 +1.50 +yes +level1/58")
        self.assertRegex(text, "mma_bf16 +1 +0 +1.00 +level1 +1.00 +1.00 +- +level1/58")

    def test_a_row_without_another_one(self):
        calls = list(read(line("level1/58", "flat_bf16", 20, chosen="any")).calls.values())
        self.assertRegex("\n".join(regret.report_rows(calls, False)), "flat_bf16 +1 +1 +nan +- +nan +- +yes")
        self.assertEqual(regret.eliminated(calls, False), ([], ["flat_bf16"]))

    def test_the_cheapest_row_goes_first(self):
        steps, stay = regret.eliminated(self.calls(), False)
        self.assertEqual([step[0] for step in steps], ["mma_bf16", "flat_bf16"])
        self.assertEqual(steps[0][1:], (1, 1, 1))
        self.assertEqual(steps[1][2:], (4, 4))
        self.assertEqual(stay, [])
        self.assertIn("at most 1.02, besides direct: 1: flat_bf16",
                      "\n".join(regret.report_smallest(self.calls(), False, 1.02)))

    def test_families(self):
        self.assertEqual([regret.family(row) for row in ("flat_bf16_of_f32", "mma_f16x3", "few_channels", "flat")],
                         ["flat", "mma", "few_channels", "flat"])
        items = regret.merged(list(read(
            line("level1/58", "dense", 20, "high", "high", dtype="f32"),
            line("level1/58", "dense_f16x3", 10, "high", dtype="f32")).calls.values()), True)
        self.assertEqual(items[0][1:], ({"dense": 10}, "dense"))


class CommandLine(unittest.TestCase):
    def call(self, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "measured.tsv"
            path.write_text("\n".join([*HEAD, *TABLE]) + "\n", encoding="utf-8")
            return subprocess.run([sys.executable, str(FOLDER / "regret.py"), str(path), *arguments],
                                  capture_output=True, text=True, check=False)

    def test_a_limit_fails_the_command(self):
        done = self.call()
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("mean 1.225, allowed is 1.02", done.stdout)
        self.assertIn("level1/58 conv3d bf16: 1.50, allowed is 1.25", done.stdout)
        self.assertEqual(self.call("--mean", "1.3", "--worst", "1.5", "--rows", "--smallest", "1.02").returncode, 0)

    def test_without_times(self):
        self.assertIn("no times", self.call("--arithmetic", "f64").stderr)


if __name__ == "__main__":
    unittest.main()
