"""KernelBench level 2, problem 74: ConvTranspose3d; leaky ReLU, multiply, leaky ReLU, max pool."""

import torch
import torch.nn as nn
import torch.nn.functional as F

import voxgrad.torch


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, output_padding, multiplier_shape):
        super().__init__()
        self.conv_transpose = voxgrad.torch.ConvTranspose3d(in_channels, out_channels, kernel_size, stride, padding,
                                                            output_padding)
        self.multiplier = nn.Parameter(torch.randn(multiplier_shape))
        self.max_pool = voxgrad.torch.MaxPool3d(kernel_size=2)

    def forward(self, x):
        x = F.leaky_relu(self.conv_transpose(x), 0.2, inplace=True) * self.multiplier
        return self.max_pool(F.leaky_relu(x, 0.2, inplace=True))
