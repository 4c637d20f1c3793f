"""nnU-Net's PlainConvUNet with torch alone, with the same names of parameters."""
import torch
from torch import nn

CHANNELS = (32, 64, 128, 256, 320, 320)


class ConvNorm(nn.Module):
    def __init__(self, c_in, c_out, stride):
        super().__init__()
        self.conv = nn.Conv3d(c_in, c_out, 3, stride, 1)
        self.norm = nn.InstanceNorm3d(c_out, affine=True)
        self.nonlin = nn.LeakyReLU(0.01, inplace=True)

    def forward(self, x):
        return self.nonlin(self.norm(self.conv(x)))


class Stack(nn.Module):
    def __init__(self, c_in, c_out, stride):
        super().__init__()
        self.convs = nn.Sequential(ConvNorm(c_in, c_out, stride), ConvNorm(c_out, c_out, 1))

    def forward(self, x):
        return self.convs(x)


class UNet(nn.Module):
    """From (N, 1, D, H, W) to logits (N, heads, D, H, W), or with `deep` to those of all resolutions, finest first."""

    def __init__(self, channels=CHANNELS, heads=3):
        super().__init__()
        pairs = list(zip((1, *channels), channels))
        self.encoder, self.decoder = nn.Module(), nn.Module()
        self.encoder.stages = nn.ModuleList(nn.Sequential(Stack(a, b, 2 if i else 1)) for i, (a, b) in enumerate(pairs))
        up = pairs[:0:-1]  # (above, below), coarsest first
        self.decoder.transpconvs = nn.ModuleList(nn.ConvTranspose3d(b, a, 2, 2) for a, b in up)
        self.decoder.stages = nn.ModuleList(Stack(2 * a, a, 1) for a, b in up)
        self.decoder.seg_layers = nn.ModuleList(nn.Conv3d(a, heads, 1) for a, b in up)

    def forward(self, x, deep=False):
        skips, logits = [], []
        for stage in self.encoder.stages:
            skips.append(x := stage(x))
        for i, stage in enumerate(self.decoder.stages):
            x = stage(torch.cat([self.decoder.transpconvs[i](x), skips[-2 - i]], 1))
            if deep or i + 1 == len(self.decoder.stages):
                logits.insert(0, self.decoder.seg_layers[i](x))
        return logits if deep else logits[0]
