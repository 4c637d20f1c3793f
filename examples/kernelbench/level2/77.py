"""KernelBench level 2, problem 77: ConvTranspose3d; scale, batch norm, global average pool."""

import torch.nn as nn

import voxgrad.torch


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, scale_factor, eps=1e-5, momentum=0.1):
        super().__init__()
        self.conv_transpose = voxgrad.torch.ConvTranspose3d(in_channels, out_channels, kernel_size)
        self.scale_factor = scale_factor
        self.batch_norm = voxgrad.torch.BatchNorm3d(out_channels, eps=eps, momentum=momentum)

    def forward(self, x):
        x = self.batch_norm(self.conv_transpose(x).mul_(self.scale_factor))
        return x.mean(dim=(2, 3, 4), keepdim=True)
