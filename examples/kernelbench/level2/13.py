"""KernelBench level 2, problem 13: ConvTranspose3d; mean over depth, add, softmax, tanh, scale."""

import torch
import torch.nn as nn

import voxgrad.torch


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, scaling_factor):
        super().__init__()
        self.conv_transpose = voxgrad.torch.ConvTranspose3d(in_channels, out_channels, kernel_size, stride, padding)
        self.bias = nn.Parameter(torch.randn(1, out_channels, 1, 1, 1))
        self.scaling_factor = scaling_factor

    def forward(self, x):
        x = self.conv_transpose(x).mean(dim=2, keepdim=True)
        x = voxgrad.torch.functional.softmax(x + self.bias, dim=1)
        return torch.tanh(x) * self.scaling_factor
