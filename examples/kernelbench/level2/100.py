"""KernelBench level 2, problem 100: ConvTranspose3d; clamp, divide."""

import torch.nn as nn

import voxgrad.torch


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, min_value, divisor):
        super().__init__()
        self.conv_transpose = voxgrad.torch.ConvTranspose3d(in_channels, out_channels, kernel_size, stride, padding)
        self.min_value = min_value
        self.divisor = divisor

    def forward(self, x):
        return self.conv_transpose(x).clamp_(min=self.min_value).div_(self.divisor)
