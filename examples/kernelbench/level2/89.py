"""KernelBench level 2, problem 89: ConvTranspose3d; max pool, softmax, subtract, swish, max over channels."""

import torch
import torch.nn as nn
import torch.nn.functional as F

import voxgrad.torch


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, output_padding, pool_kernel_size,
                 pool_stride, pool_padding):
        super().__init__()
        self.conv_transpose = voxgrad.torch.ConvTranspose3d(in_channels, out_channels, kernel_size, stride, padding,
                                                            output_padding)
        self.max_pool = voxgrad.torch.MaxPool3d(pool_kernel_size, pool_stride, pool_padding)
        self.subtract = nn.Parameter(torch.randn(out_channels))

    def forward(self, x):
        x = voxgrad.torch.functional.softmax(self.max_pool(self.conv_transpose(x)), dim=1)
        return F.silu(x - self.subtract.view(1, -1, 1, 1, 1)).amax(dim=1)
