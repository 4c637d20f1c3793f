"""KernelBench level 2, problem 60: ConvTranspose3d; swish, group norm, hardswish."""

import torch.nn as nn
import torch.nn.functional as F

import voxgrad.torch


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, groups, eps, bias=True):
        super().__init__()
        self.conv_transpose = voxgrad.torch.ConvTranspose3d(in_channels, out_channels, kernel_size, stride, padding,
                                                            bias=bias)
        self.group_norm = voxgrad.torch.GroupNorm(groups, out_channels, eps=eps)

    def forward(self, x):
        return F.hardswish(self.group_norm(F.silu(self.conv_transpose(x))))
