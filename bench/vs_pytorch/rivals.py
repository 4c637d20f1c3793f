"""PyTorch's variants of a pass: the plain call, and every variant that may be faster."""

import threading
from dataclasses import dataclass, replace
from typing import Any, Callable

from common.pytorch import torch

from .tensors import Tensors


@dataclass
class Rival:
    name: str
    run: Callable[[], Any]  # returns the results, in the order that voxgrad's have
    benchmark: bool = True  # torch.backends.cudnn.benchmark
    turned: bool = False  # the weight's gradient, if among the results, has its taps reversed


def in_fresh_thread(stream, rival, f):
    """f() with the rival's settings. PyTorch caches cuDNN's plans per thread, whether they were benchmarked or
    guessed; in a new thread no rival uses the plan of another."""
    outcome = []

    def work():
        torch.backends.cudnn.benchmark = rival.benchmark
        try:
            if stream is None:
                outcome.append(f())
            else:
                with torch.cuda.stream(stream):
                    outcome.append(f())
        except Exception as error:  # pylint: disable=broad-except
            outcome.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    torch.backends.cudnn.benchmark = False
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0]


def rivals(p, pass_, precision, t, compile_, search=True):
    """The plain call comes first. Without `search`, cudnn.benchmark stays off and the names say so."""
    def cast(tensors, dtype=None, memory_format=None):
        def one(v):
            v = v if dtype is None else v.to(dtype)
            return v.to(memory_format=memory_format) if memory_format and v.dim() == 5 else v
        return Tensors(*(one(v) for v in (tensors.x, tensors.weight, tensors.bias, tensors.gy)))

    last = torch.channels_last_3d
    forms = {"NCDHW": t, "channels_last_3d": cast(t, memory_format=last)}
    found = [Rival("call", _transposed(p, pass_, t), benchmark=False)]
    for name, tensors in forms.items():
        found.append(Rival("transposed, " + name, _transposed(p, pass_, tensors)))
        if _can_flip(p):
            found.append(Rival("flipped conv3d, " + name, _flipped(p, pass_, tensors), turned=True))
        if compile_ and pass_ == "forward":
            make = _flipped if _can_flip(p) else _transposed
            compiled = torch.compile(make(p, pass_, tensors), mode="max-autotune-no-cudagraphs",
                                     dynamic=False)
            found.append(Rival("torch.compile, " + name, compiled))
    if precision == "medium":  # f32 tensors through bf16: what autocast does, with its casts
        for name, tensors in forms.items():
            def through_bf16(tensors=tensors):
                run = _transposed(p, pass_, cast(tensors, dtype=torch.bfloat16))
                return [v.float() for v in run()]
            found.append(Rival("bf16 casts, " + name, through_bf16))
    if not search:
        found = [replace(r, benchmark=False, name=r.name + (", no search" if r.benchmark else "")) for r in found]
    return found


def _passes(pass_, forward, backward):
    """`backward(mask)` gives the gradients of input, weight and bias that the mask asks for."""
    if pass_ == "forward":
        return lambda: [forward()]
    if pass_ == "grad-input":
        return lambda: [backward([True, False, False])[0]]
    if pass_ == "grad-weight":
        return lambda: list(backward([False, True, True])[1:])
    return lambda: [forward(), *backward([True, True, True])]


def _transposed(p, pass_, t):
    options = (p.stride,) * 3, p.padding, (p.output_padding,) * 3
    dilation = (p.dilation,) * 3
    bias = t.bias if pass_ == "step" else None

    def forward():
        return torch.nn.functional.conv_transpose3d(t.x, t.weight, bias, *options, p.groups, dilation)

    def backward(mask):
        stride, padding, output_padding = options
        return torch.ops.aten.convolution_backward(t.gy, t.x, t.weight, [p.c_out], stride, padding, dilation,
                                                   True, output_padding, p.groups, mask)
    return _passes(pass_, forward, backward)


def _can_flip(p):
    full = all(p.dilation * (k - 1) >= pad for k, pad in zip(p.kernel, p.padding))
    return p.stride == 1 and p.output_padding == 0 and full


def _flipped(p, pass_, t):
    """At stride 1 a transposed convolution is a convolution with reversed taps. The weight is reversed
    beforehand, and the gradient of the weight stays reversed, so that neither is timed."""
    g = p.groups
    weight = t.weight.reshape(g, p.c_in // g, *t.weight.shape[1:]).transpose(1, 2)
    weight = weight.reshape(p.c_out, p.c_in // g, *p.kernel).flip(2, 3, 4)
    channels_last = t.x.is_contiguous(memory_format=torch.channels_last_3d) and not t.x.is_contiguous()
    weight = weight.contiguous(memory_format=torch.channels_last_3d if channels_last
                               else torch.contiguous_format)
    padding = tuple(p.dilation * (k - 1) - pad for k, pad in zip(p.kernel, p.padding))
    dilation = (p.dilation,) * 3
    bias = t.bias if pass_ == "step" else None

    def forward():
        return torch.nn.functional.conv3d(t.x, weight, bias, 1, padding, dilation, g)

    def backward(mask):
        return torch.ops.aten.convolution_backward(t.gy, t.x, weight, [p.c_out], (1,) * 3, padding, dilation,
                                                   False, (0,) * 3, g, mask)
    return _passes(pass_, forward, backward)
