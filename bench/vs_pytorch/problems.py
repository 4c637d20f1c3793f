"""The problems of bench/conv3d/problems.h, what they cost, and the floor under their time. Needs no torch."""

import ast
import math
import re
from dataclasses import dataclass, replace
from pathlib import Path

from common.floors import BYTES_PER_SECOND, ELEMENT_BYTES, floor_ms, touching_pairs  # noqa: F401

PASSES = ("forward", "grad-input", "grad-weight", "step")
PRECISIONS = ("high", "highest", "medium", "bf16", "f16")

@dataclass(frozen=True)
class Problem:
    """A transposed convolution; `number` is that of KernelBench level 1."""

    number: int
    batch: int
    c_in: int
    c_out: int
    input: tuple
    kernel: tuple
    stride: int = 1
    padding: tuple = (0, 0, 0)
    output_padding: int = 0
    dilation: int = 1
    groups: int = 1

    @property
    def output(self):
        return tuple((i - 1) * self.stride - 2 * p + self.dilation * (k - 1) + self.output_padding + 1
                     for i, k, p in zip(self.input, self.kernel, self.padding))

    @property
    def input_shape(self):
        return (self.batch, self.c_in, *self.input)

    @property
    def weight_shape(self):
        return (self.c_in, self.c_out // self.groups, *self.kernel)

    @property
    def output_shape(self):
        return (self.batch, self.c_out, *self.output)

    def flops(self):
        """Operations of one pass: two for every (input, tap) pair that meets an output."""
        return 2 * self.batch * self.c_in * (self.c_out // self.groups) * touching_pairs(
            self.output, self.input, self.kernel, (self.stride,) * 3, self.padding, (self.dilation,) * 3)

    def elements(self):
        """Elements of input, weight and output together: every pass reads two of them and writes the third."""
        return math.prod(self.input_shape) + math.prod(self.weight_shape) + math.prod(self.output_shape)

    def floor_ms(self, pass_, precision):
        return floor_ms(self.flops(), self.elements(), precision) * (3 if pass_ == "step" else 1)

    def least_step_bytes(self, precision):
        """Bytes that a training step must hold: operands, output, and a gradient of each, bias included."""
        return 2 * ELEMENT_BYTES[precision] * (self.elements() + self.c_out)


def read_problems(path):
    """The list in the C++ header: rows of `{.name = value, ...}`, read as Python dicts."""
    text = path.read_text(encoding="utf-8").split("problems[] = {")[1].split("};")[0]
    text = re.sub(r"\{([^{}.]*)\}", r"(\1)", text)  # {3, 5, 7} -> (3, 5, 7)
    rows = ast.literal_eval("[" + re.sub(r"\.(\w+) =", r'"\1":', text) + "]")
    found = []
    for row in rows:
        row |= row.pop("options", {})
        if isinstance(row.get("padding"), int):
            row["padding"] = (row["padding"],) * 3
        found.append(Problem(**row))
    return tuple(found)


SEVEN = read_problems(Path(__file__).resolve().parent.parent / "conv3d/problems.h")


def problems(device, smoke):
    """The seven; on a CPU at batch 1, except the two small ones. `smoke` makes all of them tiny."""
    if smoke:
        return [replace(p, batch=2, input=(4, 5, 6)) for p in SEVEN]
    if device == "cpu":
        return [p if p.number in (72, 77) else replace(p, batch=1) for p in SEVEN]
    return list(SEVEN)
