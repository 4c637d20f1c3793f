"""KernelBench level 2, problem 3: ConvTranspose3d; add, layer norm, average pool, GELU."""

import torch
import torch.nn as nn
import torch.nn.functional as F

import voxgrad.torch


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, output_padding, sum_weight,
                 norm_shape, pool_kernel_size):
        super().__init__()
        self.conv_transpose = voxgrad.torch.ConvTranspose3d(in_channels, out_channels, kernel_size, stride, padding,
                                                            output_padding)
        self.sum_weight = nn.Parameter(torch.tensor(sum_weight))
        self.norm = voxgrad.torch.LayerNorm(norm_shape)
        self.avg_pool = voxgrad.torch.AvgPool3d(pool_kernel_size)

    def forward(self, x):
        x = self.conv_transpose(x).add_(self.sum_weight)
        return F.gelu(self.avg_pool(self.norm(x)))
