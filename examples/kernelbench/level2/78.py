"""KernelBench level 2, problem 78: ConvTranspose3d; two max pools, sum over channels."""

import torch.nn as nn

import voxgrad.torch


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding):
        super().__init__()
        self.conv_transpose = voxgrad.torch.ConvTranspose3d(in_channels, out_channels, kernel_size, stride, padding)
        self.max_pool1 = voxgrad.torch.MaxPool3d(kernel_size=2)
        self.max_pool2 = voxgrad.torch.MaxPool3d(kernel_size=3)

    def forward(self, x):
        x = self.max_pool2(self.max_pool1(self.conv_transpose(x)))
        return x.sum(dim=1, keepdim=True)
