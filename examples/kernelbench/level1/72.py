"""KernelBench level 1, problem 72: ConvTranspose3d, asymmetric input and kernel, strided, padded, grouped."""

import torch.nn as nn

import voxgrad.torch


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride=(1, 1, 1), padding=(0, 0, 0),
                 output_padding=(0, 0, 0), groups=1, bias=False):
        super().__init__()
        self.conv_transpose3d = voxgrad.torch.ConvTranspose3d(in_channels, out_channels, kernel_size, stride, padding,
                                                              output_padding, groups, bias)

    def forward(self, x):
        return self.conv_transpose3d(x)
