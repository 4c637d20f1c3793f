"""KernelBench level 1, problem 77: ConvTranspose3d, cubic input and kernel, strided, padded, dilated."""

import torch.nn as nn

import voxgrad.torch


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, bias=False):
        super().__init__()
        self.conv_transpose3d = voxgrad.torch.ConvTranspose3d(in_channels, out_channels, kernel_size, stride, padding,
                                                              dilation=dilation, bias=bias)

    def forward(self, x):
        return self.conv_transpose3d(x)
