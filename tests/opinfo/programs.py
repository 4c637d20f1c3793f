"""Random programs: chains of views, elementwise ops, products and reductions. Each step is compared with PyTorch on
voxgrad's own operands, then the last result and its first and second gradients by all leaves, as a whole.
"""

import random

import torch

import ops
import voxgrad
from checks import Disagreement, check_gradients, refused
from compare import difference, largest
from oracle import LAY_OUT, Sample, seed

ENTRIES = {entry.name: entry for entry in ops.ENTRIES}

STEPS_OF_A_PROGRAM = (3, 9)
LARGEST = 4096  # elements

# Each step: the arguments of the op, after its first operand, drawn for a tensor x of rank >= 1; or None where it
# does not apply. A list of tensors is written as operands, "+" being another value of the program of x's shape.
def dim(x):
    return random.randrange(-x.dim(), x.dim())


def sized(x):
    d = dim(x)
    return d, x.shape[d]


STEPS = {
    "transpose": lambda x: (dim(x), dim(x)),
    "unsqueeze": lambda x: (dim(x),) if x.dim() < 5 else None,
    "select": lambda x: (lambda d: (d, random.randrange(x.shape[d])))(dim(x)) if x.dim() > 1 else None,
    "slice": lambda x: (lambda d, n: (d, random.randrange(n), n, random.choice((1, 1, 2, 3))))(*sized(x)),
    "flatten": lambda x: (0, -1),
    "expand": lambda x: ((random.choice((2, 3)), *x.shape),) if x.dim() < 5 else None,
    "permute": lambda x: (tuple(random.sample(range(x.dim()), x.dim())),),
    "add": lambda x: ("+",), "sub": lambda x: ("+",), "mul": lambda x: ("+",),
    "maximum": lambda x: ("+",), "minimum": lambda x: ("+",),
    "mul by a number": lambda x: (random.choice((-1.5, 0.5, 2)),),
    "neg": lambda x: (), "tanh": lambda x: (), "sigmoid": lambda x: (), "erf": lambda x: (), "abs": lambda x: (),
    "nn.functional.relu": lambda x: (), "nn.functional.gelu": lambda x: (), "nn.functional.silu": lambda x: (),
    "square": lambda x: (),
    "sum": lambda x: (dim(x), random.random() < 0.5), "mean": lambda x: (dim(x), random.random() < 0.5),
    "amax": lambda x: (dim(x), random.random() < 0.5), "amin": lambda x: (dim(x), random.random() < 0.5),
    "softmax": lambda x: (dim(x),), "log_softmax": lambda x: (dim(x),),
    "nn.functional.pad": lambda x: ((1, 2),),
    "cat": lambda x: (dim(x),),
    "index_select": lambda x: (lambda d, n: (d, torch.randint(n, (random.randint(1, 4),))))(*sized(x)),
}


class Program:
    """The program of this number: values in voxgrad, and in PyTorch in f64."""

    def __init__(self, number, dtype, databases):
        self.number, self.dtype = number, dtype
        self.databases = databases
        self.text, self.leaves, self.vox_leaves = f"program {number} ({str(dtype).removeprefix('torch.')})", [], []

    def __str__(self):
        return self.text

    def leaf(self, shape):
        low = torch.randn(shape, dtype=torch.float64).to(self.dtype)
        low = LAY_OUT[random.choice(("given", "strided", "transposed", "expanded"))](low, random.randrange(8))
        self.leaves.append(low.double().requires_grad_())
        self.vox_leaves.append(voxgrad.tensor(low, True))
        return self.leaves[-1], self.vox_leaves[-1]

    def both(self, name, x, v, args):
        """Calls the op in PyTorch and in voxgrad; "+" is a new leaf."""
        entry = ENTRIES["mul" if name == "mul by a number" else name]
        reference = entry.reference or self.databases[0][entry.of].op
        args = [self.leaf(self.other_shape(x)) if a == "+" else (a, a) for a in args]
        torch_args, vox_args = [a for a, _ in args], [b for _, b in args]
        vox_args = [voxgrad.tensor(a) if isinstance(a, torch.Tensor) else a for a in vox_args]
        operands = ([x, x], [v, v]) if name == "cat" else (x, v)
        y = reference(operands[0], *torch_args)
        w = refused(entry.call, operands[1], *vox_args)
        low = v.torch().double()
        others = [b.torch().double() if isinstance(b, voxgrad.Tensor) and isinstance(a, torch.Tensor)
                  and a.is_floating_point() else a for a, b in zip(torch_args, vox_args)]
        step = reference([low, low] if name == "cat" else low, *others)
        different = difference(w.torch(), step, self.dtype, "gradient", max(largest([low, step]), largest(
            [o for o in others if isinstance(o, torch.Tensor)])))
        if different:
            raise Disagreement("forward", *different)
        return y, w

    @staticmethod
    def other_shape(x):
        """A shape that broadcasts to that of x."""
        shape = [n if random.random() < 0.7 else 1 for n in x.shape]
        return shape[random.randrange(len(shape)):] if random.random() < 0.3 else shape

    def run(self, counts):
        seed(str(self.number))
        x, v = self.leaf([random.randint(1, 5) for _ in range(random.randint(1, 4))])
        for _ in range(random.randint(*STEPS_OF_A_PROGRAM)):
            name = random.choice(list(STEPS))
            args = STEPS[name](x) if x.dim() else None
            if args is None:
                continue
            self.text += f"; {name}{list(x.shape)} {args}"
            y, w = self.both(name, x, v, args)
            if y.numel() == 0 or y.numel() > LARGEST or largest([y]) > 1e4:
                break
            x, v = y, w
            counts["steps"] += 1
        counts["samples"] += 1
        scale = max(1.0, largest([x]), largest(self.leaves))
        # For the whole program, whose steps add to the difference of earlier ones.
        different = difference(v.torch(), x.detach(), self.dtype, "second gradient", 100 * scale)
        if different:
            raise Disagreement("forward", *different)
        if v.requires_grad:
            sample = Sample(None, (), {}, "program")
            check_gradients([(v, x)], self.vox_leaves, self.leaves, sample, None, False, 100 * scale, counts)
