"""Layers of torch.nn, computed by voxgrad: subclasses with the same arguments and state_dict.

The convolutions have the further keyword `precision` ("highest", "high" or "medium"); without it the context's applies.
"""

import functools
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from . import _precision, functional
from ._ops import PLAIN, compiling, in_transform, is_foreign, modes


# Whether PyTorch computes f32 on a CPU in layers of sizes at which voxgrad is slower, by bench/networks/layers_cpu.py.
leave_to_pytorch_on_cpu = True


def _on_cpu(input):
    return leave_to_pytorch_on_cpu and input.device.type == "cpu" and input.dtype is torch.float32 and modes() == 0


class _Own:
    def __prepare_scriptable__(self):
        raise RuntimeError(f"{type(self).__name__}: torch.jit.script cannot compile voxgrad's layers; undo the conversion "
                           "first (report.undo()), or use torch.jit.trace or torch.export")


class _Layer(_Own):
    """What voxgrad's convolutions add to those of PyTorch."""

    precision = None  # a layer that convert() made, or an old pickle, has no attribute of its own

    def __init__(self, *args, precision=None, **kwargs):
        super().__init__(*args, **kwargs)
        if precision is not None:
            self.precision = _precision.checked(precision)

    def extra_repr(self):
        return super().extra_repr() + (f", precision={self.precision}" if self.precision else "")


class _Conv(_Layer):
    def _conv_forward(self, input, weight, bias):
        if in_transform() or not compiling() and (is_foreign(input) or _on_cpu(input) and self._is_slow(input)):
            return super()._conv_forward(input, weight, bias)
        padding = self.padding
        if self.padding_mode != "zeros":
            input = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = 0
        return self._function(input, weight, bias, self.stride, padding, self.dilation, self.groups,
                              precision=self.precision)

    def _is_slow(self, input):
        if self.groups > 1 or min(self.weight.shape[:2]) < 16 or input.numel() < 2**12:
            return False
        pointwise = max(self.kernel_size) == 1
        most = 2**22 if pointwise or max(self.stride) > 1 else 2**21
        # Others of one volume PyTorch computes without oneDNN.
        return len(self.kernel_size) < 3 or input.numel() < most and (
            pointwise or input.shape[0] > 1 or input.shape[:4].numel() > 20480)


class _ConvTranspose(_Layer):
    def forward(self, input, output_size=None):
        if in_transform() or not compiling() and (is_foreign(input) or _on_cpu(input) and input.shape[0] > 1 and
                                                  2**10 <= input.numel() < 2**19):
            return super().forward(input, output_size)
        output_padding = self._output_padding(input, output_size, self.stride, self.padding, self.kernel_size,
                                              len(self.kernel_size), self.dilation)
        return self._function(input, self.weight, self.bias, self.stride, self.padding, output_padding, self.groups,
                              self.dilation, precision=self.precision)


# ---- Norms, activations, pooling, upsampling ---------------------------------------------------------------------


def _stays(input, least):
    """Whether PyTorch's own op computes this, as in graphs of torch.compile and torch.export, which fuse it, and on a CPU
    below `least` elements."""
    return compiling() or is_foreign(input) or modes() > 0 or (
        type(input) not in PLAIN and not torch.overrides.has_torch_function((input,))) or (
        _on_cpu(input) and input.numel() < least)


class _Norm(_Own):
    """A norm whose call takes `negative_slope`: leaky_relu in the same pass, relu for 0."""

    _least = math.inf

    def forward(self, input, negative_slope=1.0):
        if not _stays(input, self._least if negative_slope == 1 else min(self._least, 2**20)):
            return self._compute(input, negative_slope)
        result = super().forward(input)
        return result if negative_slope == 1 else F.leaky_relu(result, negative_slope)


class _BatchNorm(_Norm):
    _least = 2**18
    def _compute(self, input, negative_slope):
        self._check_input_dim(input)
        momentum = self.momentum or 0.0
        if self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            momentum = 1 / float(self.num_batches_tracked) if self.momentum is None else momentum
        training = self.training or (self.running_mean is None and self.running_var is None)
        tracked = not self.training or self.track_running_stats
        return functional.batch_norm(input, self.running_mean if tracked else None, self.running_var if tracked else None,
                                     self.weight, self.bias, training, momentum, self.eps,
                                     negative_slope=negative_slope)


class _InstanceNorm(_Norm):
    _least = 2**17
    def _compute(self, input, negative_slope):
        self._check_input_dim(input)
        if input.dim() == self._get_no_batch_dim():
            return self._compute(input.unsqueeze(0), negative_slope).squeeze(0)
        return functional.instance_norm(input, self.running_mean, self.running_var, self.weight, self.bias,
                                        self.training or not self.track_running_stats,
                                        0.0 if self.momentum is None else self.momentum, self.eps,
                                        negative_slope=negative_slope)


class GroupNorm(_Norm, nn.GroupNorm):
    def _compute(self, input, negative_slope):
        return functional.group_norm(input, self.num_groups, self.weight, self.bias, self.eps,
                                     negative_slope=negative_slope)


class LayerNorm(_Norm, nn.LayerNorm):
    def _compute(self, input, negative_slope):
        return functional.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps,
                                     negative_slope=negative_slope)


class _JoinedSequential(_Own):
    """nn.Sequential, in which a norm computes the ReLU or LeakyReLU behind it. Hooks on one of both keep them apart."""

    def forward(self, input):
        if compiling():
            return super().forward(input)
        layers, place = list(self._modules.values()), 0
        while place < len(layers):
            norm, activation = layers[place], layers[place + 1] if place + 1 < len(layers) else None
            slope = _slope_of(activation)
            if isinstance(norm, _Norm) and slope is not None and not _has_hooks(norm) and not _has_hooks(activation):
                input, place = norm(input, slope), place + 2
            else:
                input, place = norm(input), place + 1
        return input

    def __reduce_ex__(self, protocol):
        return _joined_again, (type(self).__bases__[1], self.__dict__.copy())


def _slope_of(layer):
    return 0.0 if type(layer) is ReLU else float(layer.negative_slope) if type(layer) is LeakyReLU else None


def _has_hooks(module):
    own = any(getattr(module, f"_{kind}_hooks", None) for kind in ("forward", "forward_pre", "backward", "backward_pre"))
    everywhere = nn.modules.module
    return own or bool(everywhere._global_forward_hooks or everywhere._global_forward_pre_hooks or
                       everywhere._global_backward_hooks)


@functools.lru_cache(maxsize=None)
def joined(sequential):
    """The class of nn.Sequential, or of a subclass that has its forward, that joins norms and activations."""
    return type(sequential.__name__, (_JoinedSequential, sequential), {"__module__": sequential.__module__})


def _joined_again(sequential, attributes):
    made = joined(sequential)
    module = made.__new__(made)
    module.__dict__.update(attributes)
    return module


def _layer(name, compute, base=_Own, least=math.inf, **own):
    """A subclass of torch.nn's class `name`."""
    theirs = getattr(nn, name)
    if compute:
        own["forward"] = lambda self, input: theirs.forward(self, input) if _stays(input, least) else compute(self, input)
    globals()[name] = type(name, (base, theirs), {"__module__": __name__, **own})


for _axes in (1, 2, 3):
    # Without what the functions do in PyTorch's transforms, which the layers do first.
    _layer(f"Conv{_axes}d", None, _Conv, _function=staticmethod(getattr(functional, f"conv{_axes}d").__wrapped__))
    _layer(f"ConvTranspose{_axes}d", None, _ConvTranspose,
           _function=staticmethod(getattr(functional, f"conv_transpose{_axes}d").__wrapped__))
    _layer(f"BatchNorm{_axes}d", None, _BatchNorm)
    _layer(f"InstanceNorm{_axes}d", None, _InstanceNorm)
    _layer(f"MaxPool{_axes}d", lambda self, input, f=getattr(functional, f"max_pool{_axes}d"): f(
        input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices), least=2**20)
    _layer(f"AvgPool{_axes}d", lambda self, input, f=getattr(functional, f"avg_pool{_axes}d"): f(
        input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad,
        getattr(self, "divisor_override", None)), least=2**20)
    _layer(f"AdaptiveAvgPool{_axes}d", lambda self, input, f=getattr(functional, f"adaptive_avg_pool{_axes}d"): f(
        input, self.output_size))
    _layer(f"AdaptiveMaxPool{_axes}d", lambda self, input, f=getattr(functional, f"adaptive_max_pool{_axes}d"): f(
        input, self.output_size, self.return_indices))
for _name in ("ReLU", "ReLU6", "Sigmoid", "Tanh", "SiLU", "Mish", "Hardsigmoid", "Hardswish"):
    _layer(_name, lambda self, input, f=getattr(functional, _name.lower()): f(input),
           least=2**18 if _name in ("Mish", "Tanh") else math.inf)
_layer("LeakyReLU", lambda self, input: functional.leaky_relu(input, self.negative_slope))
_layer("ELU", lambda self, input: functional.elu(input, self.alpha), least=2**18)
_layer("GELU", lambda self, input: functional.gelu(input, self.approximate))
_layer("Softplus", lambda self, input: functional.softplus(input, self.beta, self.threshold))
_layer("PReLU", lambda self, input: functional.prelu(input, self.weight))
_layer("Softmax", lambda self, input: functional.softmax(input, self.dim))
_layer("Upsample", lambda self, input: functional.interpolate(
    input, self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor), least=0)

