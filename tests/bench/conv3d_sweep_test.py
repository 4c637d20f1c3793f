"""Tests of bench/conv3d/sweep.py: floors, jumps, the picture and the command line. CTest runs it."""

import ast
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent.parent.parent / "bench/conv3d/sweep.py"
sys.path.insert(0, str(SCRIPT.parent))
import measured  # noqa: E402
import sweep as reader  # noqa: E402


def lines_of(*rows):
    """What the program prints for rows (label, us, batch, channels of big and small, changes): a coarse and a fine grid
    of one cell, so that the numbers of operations and elements follow."""
    labels = list(dict.fromkeys(row[0] for row in rows))
    lines = ["# device\ta GPU\t2", "# line\tvolume\t" + ";".join(labels)]
    for label, us, batch, channels, changes in rows:
        line = {"key": f"sweep/volume/{label}", "pass": "conv3d", "dtype": "f32", "row": "k", "us": str(us),
                "takes": "high", "chosen": "high", **changes}
        one = f"{channels},1,1,1"
        shapes = f"({batch},{one}) ({batch},{one}) ({channels},{one}) (1,1,1) (0,0,0) (1,1,1) 1"
        lines += [f"# geometry\t{line['key']}\t{shapes}", "\t".join(line.values())]
    return lines


def row(label, us, batch=1, channels=1024, **changes):
    return label, us, batch, channels, changes


def jumps(*rows):
    return reader.cliffs(reader.lines(measured.parse(lines_of(*rows), "a run")))


class Cliffs(unittest.TestCase):
    def floor_us(self, *shape):
        (point,), = reader.lines(measured.parse(lines_of(row("1", 9, *shape)), "a run")).values()
        return point.floor_us

    def test_floor_is_the_largest_of_operations_bytes_and_launch(self):
        self.assertAlmostEqual(self.floor_us(1 << 20, 4096), 1e6 * 2 * 2**44 / 356e12)
        self.assertAlmostEqual(self.floor_us(1, 4096), 1e6 * 4 * (2**24 + 2**13) / 4.3e12)
        self.assertEqual(self.floor_us(1, 1), 2)

    def test_a_jump_up_and_one_down(self):
        found = jumps(row("1", 10), row("2", 25), row("3", 11))
        self.assertEqual([(a.label, b.label) for _, a, b, _ in found], [("2", "1"), ("2", "3")])
        self.assertAlmostEqual(found[0][-1], 2.5)

    def test_only_the_chosen_kernel_is_looked_at(self):
        self.assertEqual(jumps(row("1", 10), row("1", 90, row="other", chosen="-"), row("2", 10)), [])

    def test_work_that_grows_is_no_jump(self):
        self.assertEqual(jumps(row("1", 10), row("2", 80, 8)), [])

    def test_what_the_floor_explains_is_no_jump(self):
        # Four times fewer operations on almost the same bytes: at the limit of memory the time stays.
        a, b = row("1", 20, 4, 4096), row("2", 20, 1, 4096)
        self.assertEqual(jumps(a, b), [])
        self.assertEqual(len(jumps(a, row("2", 42, 1, 4096))), 1)

    def test_only_neighbours_are_compared(self):
        other_pass, other_arithmetic = {"pass": "weight_grad"}, {"dtype": "bf16", "takes": "any", "chosen": "any"}
        for other in (other_pass, other_arithmetic):
            self.assertEqual(jumps(row("1", 10), row("2", 90, **other)), [])
        self.assertEqual(jumps(row("1", 10), row("2", 20), row("3", 40)), [])

    def test_a_geometry_of_several_names_is_a_point_of_its_line(self):
        lines = lines_of(row("1", 10), row("2", 25))
        for old, new in (("geometry\tsweep/volume/2", "geometry\tlevel1/58;sweep/volume/2"),
                         ("sweep/volume/2\tconv3d", "level1/58\tconv3d")):
            lines = [line.replace(old, new) for line in lines]
        self.assertEqual(len(reader.cliffs(reader.lines(measured.parse(lines, "a run")))), 1)


class Geometries(unittest.TestCase):
    """calls.h has the geometries of other benchmarks, whose lists are in Python and need torch."""

    bench = SCRIPT.parent.parent
    calls = (bench / "conv3d/calls.h").read_text(encoding="utf-8")

    def test_level2(self):
        rows = self.calls.split("constexpr Level2 level2[]{")[1].split("};")[0].replace("{", "(").replace("}", ")")
        ours = ast.literal_eval(f"[{rows}]")
        tree = ast.parse((self.bench / "level2/problems.py").read_text(encoding="utf-8"))
        theirs = []
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Problem":
                options = {"kernel": 3, "stride": 2, "padding": 1, "output_padding": 0}
                options |= {k.arg: k.value.value for k in node.keywords if k.arg in options}
                number, batch, c_in, c_out, cells = map(ast.literal_eval, node.args[:5])
                if number == 38:  # its input is pooled
                    cells = tuple(c // 2 for c in cells)
                theirs.append((number, batch, c_in, c_out, cells, *options.values()))
        self.assertEqual(ours, theirs)

    def test_channels_of_the_networks(self):
        models = (self.bench / "networks/models.py").read_text(encoding="utf-8")
        self.assertEqual(set(re.findall(r"\(((?:\d+, ){3,}\d+)\)", models)),
                         set(re.findall(r"\{((?:\d+, ){3,}\d+)\}, (?:128|4)", self.calls)))


class Picture(unittest.TestCase):
    def test_is_an_svg_with_the_jumps_in_red(self):
        table = measured.parse(lines_of(row("1", 10), row("2", 30), row("3", 30)), "a run")
        found = reader.lines(table)
        text = reader.svg(table, found, reader.cliffs(found), "a<b")
        xml.etree.ElementTree.fromstring(text)
        self.assertIn("time / floor, a&lt;b", text)
        self.assertEqual(text.count("<circle"), 3)
        self.assertEqual(text.count('stroke="#d00000"'), 1)


class CommandLine(unittest.TestCase):
    def call(self, lines, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "sweep.tsv"
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
            return subprocess.run([sys.executable, str(SCRIPT), str(path), *arguments],
                                  capture_output=True, text=True, check=False)

    def test_a_jump_fails_the_command(self):
        self.assertEqual(self.call(lines_of(row("1", 10), row("2", 10))).returncode, 0)
        steep = lines_of(row("1", 10), row("2", 40))
        done = self.call(steep)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("4.0x  high, conv3d, volume", done.stdout)
        self.assertEqual(self.call(steep, "--arithmetic", "highest").returncode, 0)


if __name__ == "__main__":
    unittest.main()
