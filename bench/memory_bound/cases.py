"""Every memory-bound op, for voxgrad and PyTorch (common/program.py), with the bytes that it has to move."""

from dataclasses import dataclass
from typing import Callable

import torch

from common.pytorch_ops import PYTORCH

SHAPES = {  # by the longest axis: 2^27 elements, 256 MiB in bf16 and 512 MiB in f32; and the same for --smoke
    "volume": ((2, 32, 128, 128, 128), (2, 32, 4, 4, 8)),
    "half volume": ((2, 16, 128, 128, 128), (2, 16, 4, 4, 8)),
    "small volume": ((2, 32, 64, 64, 64), (2, 32, 2, 4, 4)),
    "rows": ((1 << 18, 512), (64, 32)),
    "classes": ((2, 32, 128, 128, 128), (2, 4, 4, 4, 8)),
    **{f"{tokens} tokens of {channels}": ((1, 4, tokens, channels), (1, 4, 40, channels))
       for tokens in (4096, 32768) for channels in (16, 64)},
    **{f"grid {channels}": ((1, channels, 128, 128, 128), (1, channels, 4, 4, 8)) for channels in (1, 3, 32)},
}


@dataclass
class Case:
    """`function` takes ops and operands. `forward` and `backward` list the tensors that a pass moves, a letter each: the operands, which tensors()
    explains (c counts no bytes), y for the output, and g for the gradient of y. The gradient of an operand has the
    operand's letter. An empty string says that the pass is not worth measuring."""

    name: str
    function: Callable
    forward: str
    backward: str
    operands: str = "x"
    shape: str = "volume"
    passes: tuple = ("forward", "backward")  # the second one may be "step": forward and backward

    def pytorch(self, *operands):
        return self.function(PYTORCH, *operands)

    def tensors(self, dtype, device, smoke):
        """The operands by letter: x, a and k are normal, p is a positive x, b a condition, t classes, d points for
        grid_sample, f fixed ones, c two vectors of parameters."""
        shape, made = SHAPES[self.shape][smoke], []
        for kind in self.operands:
            if kind in "xak":
                made.append(torch.randn(shape, device=device).to(dtype).requires_grad_())
            elif kind == "p":
                made.append((torch.rand(shape, device=device) + 0.5).to(dtype).requires_grad_())
            elif kind == "b":
                made.append(torch.rand(shape, device=device) < 0.5)
            elif kind in "df":
                made.append(points(shape, device).to(dtype).requires_grad_(kind == "d"))
            elif kind == "t":
                made.append(torch.randint(shape[1], (shape[0], *shape[2:]), device=device))
            else:
                length = shape[-1] if self.shape == "rows" else shape[1]
                made += [torch.rand(length, device=device).to(dtype).requires_grad_() for _ in range(2)]
        return made

    def moved_bytes(self, pass_, operands, y):
        """The bytes that the pass must move at least."""
        def size(t):
            return t.numel() * t.element_size()

        sizes = {"y": size(y), "g": size(y)}
        for kind, tensor in zip(self.operands.replace("c", ""), operands):
            sizes["x" if kind == "p" else kind] = size(tensor)
        return sum(sizes[letter] for letter in (self.forward if pass_ == "forward" else self.backward))


def points(shape, device):
    """The cells of a volume of this shape, turned by 10 degrees and moved at random by a quarter of a cell."""
    turn = torch.tensor([[0.985, 0.174, 0, 0], [-0.174, 0.985, 0, 0], [0, 0, 1, 0]])[None]
    grid = torch.nn.functional.affine_grid(turn, list(shape), align_corners=False).to(device)
    return grid + torch.randn_like(grid) * (0.5 / shape[-1])


def op(name, *values):
    """The op of this name, of the operands and these values."""
    return lambda ops, *operands: getattr(ops, name)(*operands, *values)


def batch_norm(slope):
    return lambda ops, x, weight, bias: ops.batch_norm(x, None, None, weight, bias, True, 0.1, 1e-5, slope)


def instance_norm(slope):
    return lambda ops, x, weight, bias: ops.instance_norm(x, None, None, weight, bias, True, 0.1, 1e-5, slope)


def group_norm(slope):
    return lambda ops, x, weight, bias: ops.group_norm(x, 8, weight, bias, 1e-5, slope)


def layer_norm(slope):
    return lambda ops, x, weight, bias: ops.layer_norm(x, tuple(weight.shape), weight, bias, 1e-5, slope)


def var_mean(dims):
    """Both results of one op, which are small."""
    return lambda ops, x: ops.add(*ops.var_mean(x, dims, 1, False))


def unary(name, *values, kind="x"):
    return Case(name, op(name, *values), "xy", "gxx", kind)  # y may be read instead of x: the same bytes


NO, RELU, LEAKY = 1.0, 0.0, 0.01  # activations behind a norm, by their slope below 0
TO_CHANNELS = (0, 2, 3, 4)

# A norm over more than fits on the chip reads x twice and writes once; its gradient reads x and g twice. An activation
# behind it moves nothing more. Rows of 512 are read once.
CASES = [
    Case("add", op("add"), "xay", "", "xa"),
    Case("sub", op("sub"), "xay", "", "xa"),
    Case("mul", op("mul"), "xay", "gxaxa", "xa"),
    Case("div", op("div"), "xay", "gxaxa", "ap"),
    Case("pow", op("pow"), "xay", "gxaxa", "pa"),
    Case("maximum", op("maximum"), "xay", "gxaxa", "xa"),
    Case("minimum", op("minimum"), "xay", "gxaxa", "xa"),
    Case("where", lambda ops, x, a, b: ops.where(b, x, a), "bxay", "gbxa", "xab"),
    Case("compare", op("gt"), "xay", "", "xa"),
    Case("mul scalar", op("mul", 1.5), "xy", "gx"),
    Case("neg", op("neg"), "xy", "gx"),
    *map(unary, ("abs", "exp", "erf", "tanh", "sigmoid", "relu")),
    *(unary(name, kind="p") for name in ("log", "sqrt", "rsqrt")),
    # Not hardsigmoid, whose gradient in f64 PyTorch computes with 1/6 rounded to f32.
    unary("leaky_relu", 0.01), unary("gelu"), unary("silu"), unary("mish"), unary("elu", 1.0),
    unary("softplus", 1.0, 20.0), unary("relu6"), unary("hardtanh", -1.0, 1.0), unary("hardswish"),
    unary("clamp", -1, 1),
    Case("batch_norm", batch_norm(NO), "xxy", "gxgxx", "xc"),
    Case("batch_norm relu", batch_norm(RELU), "xxy", "gxgxx", "xc"),
    Case("instance_norm", instance_norm(NO), "xxy", "gxgxx", "xc"),
    Case("instance_norm leaky_relu", instance_norm(LEAKY), "xxy", "gxgxx", "xc"),
    Case("group_norm", group_norm(NO), "xxy", "gxgxx", "xc"),
    Case("group_norm relu", group_norm(RELU), "xxy", "gxgxx", "xc"),
    Case("group_norm silu", lambda ops, *t: ops.silu(group_norm(NO)(ops, *t)), "xxy", "gxgxx", "xc"),
    Case("layer_norm", layer_norm(NO), "xy", "gxx", "xc", "rows"),
    Case("layer_norm relu", layer_norm(RELU), "xy", "gxx", "xc", "rows"),
    Case("softmax rows", op("softmax", -1), "xy", "gyx", shape="rows"),
    Case("softmax channels", op("softmax", 1), "xy", "gyx"),
    Case("log_softmax rows", op("log_softmax", -1), "xy", "gyx", shape="rows"),
    Case("cross_entropy", op("cross_entropy"), "xty", "xtx", "xt", "classes"),
    Case("mse_loss", op("mse_loss", "mean"), "xay", "xaxa", "xa"),
    Case("l1_loss", op("l1_loss", "mean"), "xay", "xaxa", "xa"),
    Case("sum", op("sum", (), False), "xy", ""),  # the gradient of a sum is a view
    Case("sum rows", op("sum", (-1,), False), "xy", "", shape="rows"),
    Case("sum columns", op("sum", (0,), False), "xy", "", shape="rows"),
    Case("sum to channels", op("sum", TO_CHANNELS, False), "xy", ""),
    Case("global mean", op("mean", (2, 3, 4), True), "xy", ""),
    Case("max rows", op("max", (-1,), False), "xy", "gxx", shape="rows"),
    Case("argmax rows", op("argmax", (-1,), False), "xy", "", shape="rows"),
    Case("logsumexp rows", op("logsumexp", (-1,), False), "xy", "gxx", shape="rows"),
    Case("logsumexp channels", op("logsumexp", (1,), False), "xy", "gxx"),
    Case("norm rows", op("norm", 2, (-1,), False), "xy", "gxx", shape="rows"),
    Case("var_mean rows", var_mean((-1,)), "xy", "gxx", shape="rows"),
    Case("var_mean to channels", var_mean(TO_CHANNELS), "xy", "gxx"),
    Case("max_pool3d 2", op("max_pool3d", 2), "xy", "gx"),
    Case("max_pool3d 3", op("max_pool3d", 3, 2, 1), "xy", "gx"),
    Case("avg_pool3d 2", op("avg_pool3d", 2), "xy", "gx"),
    Case("adaptive_max_pool3d 7", op("adaptive_max_pool3d", 7), "xy", "gx"),
    Case("adaptive_avg_pool3d 7", op("adaptive_avg_pool3d", 7), "xy", "gx"),
    Case("nearest x2", op("interpolate", None, 2, "nearest"), "xy", "gx", shape="small volume"),
    Case("trilinear x2", op("interpolate", None, 2, "trilinear"), "xy", "gx", shape="small volume"),
    Case("cat", lambda ops, x, a: ops.cat([x, a], 1), "xay", "gxa", "xa", "half volume"),
    Case("pad", op("pad", (1,) * 6, 0), "xy", "gx"),
    Case("copy transposed", lambda ops, x: ops.contiguous(ops.transpose(x, -1, -2)), "xy", "gx"),
    Case("copy every second", lambda ops, x: ops.contiguous(ops.slice(x, -1, 0, None, 2)), "xy", "gx"),
    Case("channels last", lambda ops, x: ops.contiguous(ops.permute(x, (0, 2, 3, 4, 1))), "xy", "gx"),
    Case("cast to f32", op("to", "f32"), "xy", "gx"),
    *(Case(f"grid_sample {mode} {channels}", op("grid_sample", mode, "zeros", False), "xfy", "gfx", "xf",
           f"grid {channels}") for channels in (1, 3, 32) for mode in ("trilinear", "nearest")),
    *(Case(f"grid_sample trilinear {channels} both gradients", op("grid_sample", "trilinear", "zeros", False), "",
           "gxdxd", "xd", f"grid {channels}") for channels in (1, 3, 32)),
    # Bound by arithmetic: compare with PyTorch, not with the floor.
    *(Case(f"attention {shape}", op("scaled_dot_product_attention"), "xaky", "xakgxak", "xak", shape,
           ("forward", "step"))
      for shape in SHAPES if "tokens" in shape and hasattr(torch.nn.functional, "scaled_dot_product_attention")),
]


def optimiser_bytes(name, parameter):
    """Reads the parameter, its gradient and the f32 state; writes the parameter and the state."""
    return parameter.numel() * (3 * parameter.element_size() + 2 * 4 * (1 if name == "sgd" else 2))
