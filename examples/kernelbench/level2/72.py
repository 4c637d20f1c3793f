"""KernelBench level 2, problem 72: ConvTranspose3d; batch norm, two average pools."""

import torch.nn as nn

import voxgrad.torch


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, bias_shape):
        super().__init__()
        self.conv_transpose = voxgrad.torch.ConvTranspose3d(in_channels, out_channels, kernel_size, stride, padding)
        self.batch_norm = voxgrad.torch.BatchNorm3d(out_channels)
        self.avg_pool = voxgrad.torch.AvgPool3d(kernel_size=4)  # two pools of 2

    def forward(self, x):
        return self.avg_pool(self.batch_norm(self.conv_transpose(x)))
