"""One function for both libraries: f(ops, *operands), where `ops` has voxgrad's ops with their C++ arguments, and is
either PyTorch's (PYTORCH in pytorch_ops.py) or a Program, which records the calls for voxgrad to run later."""

import ctypes
from ctypes import c_char_p, c_int64, c_void_p

import capi

RESULTS = {"var_mean": 2}  # of other ops: 1


class Step(ctypes.Structure):
    """VoxgradStep."""

    _fields_ = [("op", c_char_p), ("count", c_int64), ("arguments", c_void_p)]


class Value(capi.Result):
    """The result of a step, or an operand, which has a shape. Operators are steps too."""

    def __init__(self, program, place, shape=None):
        self._program, self.place, self.shape = program, place, shape

    def __add__(self, other):
        return self._program.add(self, other)

    def __sub__(self, other):
        return self._program.sub(self, other)

    def __mul__(self, other):
        return self._program.mul(self, other)

    def __truediv__(self, other):
        return self._program.div(self, other)


class Program:
    """`program.relu(x)` records a step."""

    def __init__(self, operands):
        self._operands = [Value(self, i, tuple(t.shape)) for i, t in enumerate(operands)]
        self._places, self._calls = len(operands), []

    def record(self, function):
        """The steps of function(self, *operands)."""
        result = function(self, *self._operands)
        if result.place != self._places - 1:
            raise ValueError("bench: the result of a program must be that of its last op")
        steps = (Step * len(self._calls))()
        steps.kept = [capi.arguments(values) for _, values in self._calls]
        for step, (op, _), arguments in zip(steps, self._calls, steps.kept):
            step.op, step.count, step.arguments = op.encode(), len(arguments), ctypes.addressof(arguments)
        return steps

    def __getattr__(self, op):
        def call(*values):
            self._calls.append((op, values))
            count = RESULTS.get(op, 1)
            found = [Value(self, self._places + i) for i in range(count)]
            self._places += count
            return found[0] if count == 1 else found
        return call
