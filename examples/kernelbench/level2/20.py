"""KernelBench level 2, problem 20: ConvTranspose3d; add, residual add, multiply, residual add."""

import torch
import torch.nn as nn

import voxgrad.torch


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, output_padding, bias_shape):
        super().__init__()
        self.conv_transpose = voxgrad.torch.ConvTranspose3d(in_channels, out_channels, kernel_size, stride, padding,
                                                            output_padding)
        self.bias = nn.Parameter(torch.randn(bias_shape))

    def forward(self, x):
        x = self.conv_transpose(x)
        original = x.detach()
        return torch.addcmul(original, (x + self.bias).add_(original), original)
