"""KernelBench level 2, problem 77: ConvTranspose3d; scale, batch norm, global average pool."""

import torch
import torch.nn as nn

import voxgrad.torch


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, scale_factor, eps=1e-5, momentum=0.1):
        super().__init__()
        self.conv_transpose = voxgrad.torch.ConvTranspose3d(in_channels, out_channels, kernel_size)
        self.scale_factor = scale_factor
        self.batch_norm = nn.BatchNorm3d(out_channels, eps=eps, momentum=momentum)

    def forward(self, x):
        x = self.conv_transpose(x)
        # A norm of the scaled cells, and then their mean, is one pass: a norm of each image's mean.
        variance, mean = torch.var_mean(x, dim=(2, 3, 4), correction=0, keepdim=True)
        mean, variance, norm = mean * self.scale_factor, variance * self.scale_factor**2, self.batch_norm
        if norm.training:
            count = x.numel() // x.shape[1]
            variance = variance.mean(0, keepdim=True) + mean.var(0, correction=0, keepdim=True)
            centre = mean.mean(0, keepdim=True)
            with torch.no_grad():
                norm.num_batches_tracked += 1
                norm.running_mean.lerp_(centre.flatten(), norm.momentum)
                norm.running_var.lerp_(variance.flatten() * (count / (count - 1)), norm.momentum)
        else:
            centre, variance = (t.view(1, -1, 1, 1, 1) for t in (norm.running_mean, norm.running_var))
        weight, bias = (t.view(1, -1, 1, 1, 1) for t in (norm.weight, norm.bias))
        return torch.addcmul(bias, (mean - centre) * torch.rsqrt(variance + norm.eps), weight)
