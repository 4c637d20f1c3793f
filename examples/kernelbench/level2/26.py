"""KernelBench level 2, problem 26: ConvTranspose3d; add an input, x * hardswish(x)."""

import torch
import torch.nn as nn
import torch.nn.functional as F

import voxgrad.torch


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, output_padding, bias_shape):
        super().__init__()
        self.conv_transpose = voxgrad.torch.ConvTranspose3d(in_channels, out_channels, kernel_size, stride, padding,
                                                            output_padding)
        self.bias = nn.Parameter(torch.randn(bias_shape))  # not used, as in the original

    def forward(self, x, add_input):
        x = self.conv_transpose(x).add_(add_input)
        return x * F.hardswish(x)
