"""Every memory-bound op in PyTorch, by the name that it has in shim.cpp, with the bytes that it has to move."""

from dataclasses import dataclass
from typing import Callable

import torch
from torch.nn import functional as f

SHAPES = {  # by the longest axis: 2^27 elements, 256 MiB in bf16 and 512 MiB in f32; and the same for --smoke
    "volume": ((2, 32, 128, 128, 128), (2, 32, 4, 4, 8)),
    "half volume": ((2, 16, 128, 128, 128), (2, 16, 4, 4, 8)),
    "small volume": ((2, 32, 64, 64, 64), (2, 32, 2, 4, 4)),
    "rows": ((1 << 18, 512), (64, 32)),
    "classes": ((2, 32, 128, 128, 128), (2, 4, 4, 4, 8)),
}


@dataclass
class Case:
    """`forward` and `backward` list the tensors that a pass moves, a letter each: the operands, which tensors()
    explains (c counts no bytes), y for the output, and g for the gradient of y. The gradient of an operand has the
    operand's letter. An empty string says that the pass is not worth measuring."""

    name: str
    function: Callable
    forward: str
    backward: str
    operands: str = "x"
    shape: str = "volume"

    def tensors(self, dtype, device, smoke):
        """The operands by letter: x and a are normal, p is a positive x, b a condition, t classes, c two vectors of
        parameters."""
        shape, made = SHAPES[self.shape][smoke], []
        for kind in self.operands:
            if kind in "xa":
                made.append(torch.randn(shape, device=device).to(dtype).requires_grad_())
            elif kind == "p":
                made.append((torch.rand(shape, device=device) + 0.5).to(dtype).requires_grad_())
            elif kind == "b":
                made.append(torch.rand(shape, device=device) < 0.5)
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


def batch_norm(x, weight, bias):
    return f.batch_norm(x, None, None, weight, bias, training=True)


def instance_norm(x, weight, bias):
    return f.instance_norm(x, weight=weight, bias=bias)


def group_norm(x, weight, bias):
    return f.group_norm(x, 8, weight, bias)


def layer_norm(x, weight, bias):
    return f.layer_norm(x, weight.shape, weight, bias)


def var_mean(x, dims):
    """Both results of one op, which are small."""
    return torch.add(*torch.var_mean(x, dims))


def unary(name, function, kind="x"):
    return Case(name, function, "xy", "gxx", kind)  # y may be read instead of x: the same bytes


# A norm over more than fits on the chip reads x twice and writes once; its gradient reads x and g twice. An activation
# behind it moves nothing more. Rows of 512 are read once.
CASES = [
    Case("add", torch.add, "xay", "", "xa"),
    Case("sub", torch.sub, "xay", "", "xa"),
    Case("mul", torch.mul, "xay", "gxaxa", "xa"),
    Case("div", torch.div, "xay", "gxaxa", "ap"),
    Case("pow", torch.pow, "xay", "gxaxa", "pa"),
    Case("maximum", torch.maximum, "xay", "gxaxa", "xa"),
    Case("minimum", torch.minimum, "xay", "gxaxa", "xa"),
    Case("where", lambda x, a, b: torch.where(b, x, a), "bxay", "gbxa", "xab"),
    Case("compare", torch.gt, "xay", "", "xa"),
    Case("mul scalar", lambda x: x * 1.5, "xy", "gx"),
    Case("neg", torch.neg, "xy", "gx"),
    *(unary(name, getattr(torch, name)) for name in ("abs", "exp", "erf", "tanh", "sigmoid", "relu")),
    *(unary(name, getattr(torch, name), "p") for name in ("log", "sqrt", "rsqrt")),
    # Not hardsigmoid, whose gradient in f64 PyTorch computes with 1/6 rounded to f32.
    *(unary(name, getattr(f, name)) for name in ("leaky_relu", "gelu", "silu", "mish", "elu", "softplus", "relu6",
                                                 "hardtanh", "hardswish")),
    unary("clamp", lambda x: torch.clamp(x, -1, 1)),
    Case("batch_norm", batch_norm, "xxy", "gxgxx", "xc"),
    Case("batch_norm relu", lambda *t: f.relu(batch_norm(*t)), "xxy", "gxgxx", "xc"),
    Case("instance_norm", instance_norm, "xxy", "gxgxx", "xc"),
    Case("instance_norm leaky_relu", lambda *t: f.leaky_relu(instance_norm(*t)), "xxy", "gxgxx", "xc"),
    Case("group_norm", group_norm, "xxy", "gxgxx", "xc"),
    Case("group_norm relu", lambda *t: f.relu(group_norm(*t)), "xxy", "gxgxx", "xc"),
    Case("group_norm silu", lambda *t: f.silu(group_norm(*t)), "xxy", "gxgxx", "xc"),
    Case("layer_norm", layer_norm, "xy", "gxx", "xc", "rows"),
    Case("layer_norm relu", lambda *t: f.relu(layer_norm(*t)), "xy", "gxx", "xc", "rows"),
    Case("softmax rows", lambda x: f.softmax(x, -1), "xy", "gyx", shape="rows"),
    Case("softmax channels", lambda x: f.softmax(x, 1), "xy", "gyx"),
    Case("log_softmax rows", lambda x: f.log_softmax(x, -1), "xy", "gyx", shape="rows"),
    Case("cross_entropy", f.cross_entropy, "xty", "xtx", "xt", "classes"),
    Case("mse_loss", f.mse_loss, "xay", "xaxa", "xa"),
    Case("l1_loss", f.l1_loss, "xay", "xaxa", "xa"),
    Case("sum", torch.sum, "xy", ""),  # the gradient of a sum is a view
    Case("sum rows", lambda x: x.sum(-1), "xy", "", shape="rows"),
    Case("sum columns", lambda x: x.sum(0), "xy", "", shape="rows"),
    Case("sum to channels", lambda x: x.sum((0, 2, 3, 4)), "xy", ""),
    Case("global mean", lambda x: x.mean((2, 3, 4), keepdim=True), "xy", ""),
    Case("max rows", lambda x: x.amax(-1), "xy", "gxx", shape="rows"),
    Case("argmax rows", lambda x: x.argmax(-1), "xy", "", shape="rows"),
    Case("logsumexp rows", lambda x: torch.logsumexp(x, -1), "xy", "gxx", shape="rows"),
    Case("logsumexp channels", lambda x: torch.logsumexp(x, 1), "xy", "gxx"),
    Case("norm rows", lambda x: torch.linalg.vector_norm(x, 2, -1), "xy", "gxx", shape="rows"),
    Case("var_mean rows", lambda x: var_mean(x, -1), "xy", "gxx", shape="rows"),
    Case("var_mean to channels", lambda x: var_mean(x, (0, 2, 3, 4)), "xy", "gxx"),
    Case("max_pool3d 2", lambda x: f.max_pool3d(x, 2), "xy", "gx"),
    Case("max_pool3d 3", lambda x: f.max_pool3d(x, 3, 2, 1), "xy", "gx"),
    Case("avg_pool3d 2", lambda x: f.avg_pool3d(x, 2), "xy", "gx"),
    Case("adaptive_max_pool3d 7", lambda x: f.adaptive_max_pool3d(x, 7), "xy", "gx"),
    Case("adaptive_avg_pool3d 7", lambda x: f.adaptive_avg_pool3d(x, 7), "xy", "gx"),
    Case("nearest x2", lambda x: f.interpolate(x, scale_factor=2), "xy", "gx", shape="small volume"),
    Case("trilinear x2", lambda x: f.interpolate(x, scale_factor=2, mode="trilinear"), "xy", "gx",
         shape="small volume"),
    Case("cat", lambda x, a: torch.cat([x, a], 1), "xay", "gxa", "xa", "half volume"),
    Case("pad", lambda x: f.pad(x, (1,) * 6), "xy", "gx"),
    Case("copy transposed", lambda x: x.transpose(-1, -2).contiguous(), "xy", "gx"),
    Case("copy every second", lambda x: x[..., ::2].contiguous(), "xy", "gx"),
    Case("channels last", lambda x: x.permute(0, 2, 3, 4, 1).contiguous(), "xy", "gx"),
    Case("cast to f32", lambda x: x.float(), "xy", "gx"),
]


def optimiser_bytes(name, parameter):
    """Reads the parameter, its gradient and the f32 state; writes the parameter and the state."""
    return parameter.numel() * (3 * parameter.element_size() + 2 * 4 * (1 if name == "sgd" else 2))
