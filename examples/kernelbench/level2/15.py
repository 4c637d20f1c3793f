"""KernelBench level 2, problem 15: ConvTranspose3d; batch norm, subtract the spatial mean."""

import torch.nn as nn

import voxgrad.torch


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, bias=True):
        super().__init__()
        self.conv_transpose = voxgrad.torch.ConvTranspose3d(in_channels, out_channels, kernel_size, stride, padding,
                                                            bias=bias)
        self.batch_norm = voxgrad.torch.BatchNorm3d(out_channels)

    def forward(self, x):
        x = self.batch_norm(self.conv_transpose(x))
        return x.sub_(x.mean(dim=(2, 3, 4), keepdim=True))
