"""KernelBench level 2, problem 38: ConvTranspose3d; average pool before; clamp, spatial softmax, scale."""

import torch
import torch.nn as nn

import voxgrad.torch


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, output_padding, pool_kernel_size,
                 clamp_min, clamp_max):
        super().__init__()
        self.avg_pool = voxgrad.torch.AvgPool3d(pool_kernel_size)
        self.conv_transpose = voxgrad.torch.ConvTranspose3d(in_channels, out_channels, kernel_size, stride, padding,
                                                            output_padding)
        self.clamp_min = clamp_min
        self.clamp_max = clamp_max
        self.scale = nn.Parameter(torch.ones(1, out_channels, 1, 1, 1))

    def forward(self, x):
        x = self.conv_transpose(self.avg_pool(x)).clamp_(self.clamp_min, self.clamp_max)
        return torch.softmax(x.flatten(2), dim=2).view_as(x) * self.scale
