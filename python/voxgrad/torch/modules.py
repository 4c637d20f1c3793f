"""The convolution layers of torch.nn, computed by voxgrad: subclasses with the same arguments and state_dict.

The keyword `precision` ("highest", "high" or "medium") is added; without it the context's applies.
"""

import torch.nn as nn
import torch.nn.functional as F

from . import _precision, functional


class _Layer:
    """What voxgrad's layers add to those of PyTorch."""

    precision = None  # a layer that convert() made, or an old pickle, has no attribute of its own

    def __init__(self, *args, precision=None, **kwargs):
        super().__init__(*args, **kwargs)
        if precision is not None:
            self.precision = _precision.checked(precision)

    def extra_repr(self):
        return super().extra_repr() + (f", precision={self.precision}" if self.precision else "")


class _Conv(_Layer):
    def _conv_forward(self, input, weight, bias):
        padding = self.padding
        if self.padding_mode != "zeros":
            input = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = 0
        return self._function(input, weight, bias, self.stride, padding, self.dilation, self.groups,
                              precision=self.precision)


class _ConvTranspose(_Layer):
    def forward(self, input, output_size=None):
        output_padding = self._output_padding(input, output_size, self.stride, self.padding, self.kernel_size,
                                              len(self.kernel_size), self.dilation)
        return self._function(input, self.weight, self.bias, self.stride, self.padding, output_padding, self.groups,
                              self.dilation, precision=self.precision)


class Conv1d(_Conv, nn.Conv1d):
    _function = staticmethod(functional.conv1d)


class Conv2d(_Conv, nn.Conv2d):
    _function = staticmethod(functional.conv2d)


class Conv3d(_Conv, nn.Conv3d):
    _function = staticmethod(functional.conv3d)


class ConvTranspose1d(_ConvTranspose, nn.ConvTranspose1d):
    _function = staticmethod(functional.conv_transpose1d)


class ConvTranspose2d(_ConvTranspose, nn.ConvTranspose2d):
    _function = staticmethod(functional.conv_transpose2d)


class ConvTranspose3d(_ConvTranspose, nn.ConvTranspose3d):
    _function = staticmethod(functional.conv_transpose3d)
