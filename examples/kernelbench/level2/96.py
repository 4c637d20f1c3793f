"""KernelBench level 2, problem 96: ConvTranspose3d; scale, max pool, global average pool, clamp."""

import torch.nn as nn

import voxgrad.torch


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, scale, maxpool_kernel_size):
        super().__init__()
        self.conv_transpose = voxgrad.torch.ConvTranspose3d(in_channels, out_channels, kernel_size, stride, padding)
        self.scale = scale
        self.max_pool = voxgrad.torch.MaxPool3d(maxpool_kernel_size)

    def forward(self, x):
        x = self.max_pool(self.conv_transpose(x).mul_(self.scale))
        return x.mean(dim=(2, 3, 4), keepdim=True).clamp(0, 1)
