"""KernelBench level 2, problem 49: ConvTranspose3d; softmax over channels, sigmoid."""

import torch
import torch.nn as nn

import voxgrad.torch


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, output_padding, bias=True):
        super().__init__()
        self.conv_transpose = voxgrad.torch.ConvTranspose3d(in_channels, out_channels, kernel_size, stride, padding,
                                                            output_padding, bias=bias)

    def forward(self, x):
        return torch.sigmoid(voxgrad.torch.functional.softmax(self.conv_transpose(x), dim=1))
