"""KernelBench level 2, problem 61: ConvTranspose3d; ReLU, group norm."""

import torch.nn as nn

import voxgrad.torch


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, groups, bias=False):
        super().__init__()
        self.conv_transpose = voxgrad.torch.ConvTranspose3d(in_channels, out_channels, kernel_size, bias=bias)
        self.group_norm = voxgrad.torch.GroupNorm(groups, out_channels)

    def forward(self, x):
        return self.group_norm(self.conv_transpose(x).relu_())
