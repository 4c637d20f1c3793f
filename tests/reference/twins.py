#!/usr/bin/env python3
"""twins.py: trains the networks of tests/nn/twins_test.cpp in PyTorch and prints their losses, which the test has.

Weights and data are no random numbers but a formula, so no file is needed. Needs torch, monai and
dynamic-network-architectures from PyPI.
"""
import torch
import torch.nn.functional as F
from dynamic_network_architectures.architectures.unet import ResidualEncoderUNet
from monai.losses import DiceCELoss
from monai.networks.blocks.mednext_block import MedNeXtBlock, MedNeXtDownBlock, MedNeXtOutBlock, MedNeXtUpBlock
from torch import nn

torch.set_default_dtype(torch.float64)


def numbers(k, shape):
    """Of -0.5 to 0.5, for tensor k."""
    i = torch.arange(torch.Size(shape).numel())
    return (((i * 37 + k * 101 + 11) % 1009).double() / 1009 - 0.5).reshape(shape)


def classes(count, shape):
    i = torch.arange(torch.Size(shape).numel())
    return ((i * 7919 + 13) % 101 % count).reshape(shape)


def start(network):
    """Parameters by the order of their names."""
    parameters = dict(network.named_parameters())
    with torch.no_grad():
        for k, name in enumerate(sorted(parameters)):
            p = parameters[name]
            if p.dim() > 1:
                p.copy_(numbers(k + 1, p.shape) * (4 / (p.numel() / p.shape[0]) ** 0.5))
            else:
                p.copy_(numbers(k + 1, p.shape) * 0.25 + name.endswith("weight"))
    return network


def residual_encoder_unet():
    network = start(ResidualEncoderUNet(
        1, 3, (4, 6, 8), nn.Conv3d, ((1, 3, 3), 3, 3), (1, (1, 2, 2), 2), (1, 2, 2), 3, (1, 1), True, nn.InstanceNorm3d,
        {"eps": 1e-5, "affine": True}, None, None, nn.LeakyReLU, {"inplace": True}, deep_supervision=True))
    criterion = DiceCELoss(include_background=False, to_onehot_y=True, softmax=True)
    x, target = numbers(0, (2, 1, 4, 8, 8)) * 2, classes(3, (2, 1, 4, 8, 8))

    def loss():
        full, half = network(x)
        return (2 * criterion(full, target) + criterion(half, target[..., ::2, ::2])) / 3

    return network, torch.optim.SGD(network.parameters(), 0.01, 0.99, weight_decay=3e-5, nesterov=True), loss, 12


class MedNeXt(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv3d(2, 4, 1)
        self.encoder = MedNeXtBlock(4, 4, 2, 3)
        self.down = MedNeXtDownBlock(4, 8, 2, 3, True)
        self.middle = MedNeXtBlock(8, 8, 3, 3, global_resp_norm=True)
        self.up = MedNeXtUpBlock(8, 4, 2, 3, True)
        self.decoder = MedNeXtBlock(4, 4, 2, 3)
        self.out = MedNeXtOutBlock(4, 3, "3d")

    def forward(self, x):
        x = self.encoder(self.stem(x))
        return self.out(self.decoder(x + self.up(self.middle(self.down(x)))))


def mednext():
    network = start(MedNeXt())
    x, target = numbers(0, (2, 2, 6, 8, 4)) * 2, classes(3, (2, 6, 8, 4))
    optimizer = torch.optim.AdamW(network.parameters(), 0.01, weight_decay=0.05)
    return network, optimizer, lambda: F.cross_entropy(network(x), target, label_smoothing=0.1), 1


class RadianceGrid(nn.Module):
    """Features in a volume, a decoder of the features and the encoded direction, and compositing along rays."""

    def __init__(self):
        super().__init__()
        self.volume = nn.Parameter(torch.zeros(1, 4, 4, 5, 6))
        self.pose = nn.Parameter(torch.zeros(1, 3, 4))
        self.density = nn.Sequential(nn.Linear(4, 8), nn.SiLU(), nn.Linear(8, 5))
        self.colour = nn.Sequential(nn.Linear(4 + 4, 8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, depth, height, width):
        theta = self.pose * 0.2 + torch.eye(3, 4)
        grid = F.affine_grid(theta, (1, 1, depth, height, width), align_corners=False)
        features = F.grid_sample(self.volume, grid, padding_mode="border", align_corners=True)
        points = features[0].flatten(1).T.reshape(depth, height * width, 4)
        hidden = self.density(points)
        w = grid[0, ..., :2].reshape(depth, height * width, 2) * torch.pi
        colour = torch.sigmoid(self.colour(torch.cat([hidden[..., 1:], torch.sin(w), torch.cos(w)], -1)))
        alpha = 1 - torch.exp(-F.softplus(hidden[..., 0]))
        clear = torch.cumprod(torch.cat([torch.ones_like(alpha[:1]), 1 - alpha + 1e-10]), 0)[:-1]
        return ((alpha * clear)[..., None] * colour).sum(0)


def radiance_grid():
    network = start(RadianceGrid())
    target = numbers(0, (30, 3)) + 0.5

    def loss():
        volume = network.volume
        rough = ((volume[:, :, 1:] - volume[:, :, :-1]) ** 2).mean() + (volume.diff(dim=-1).abs()).mean()
        return F.mse_loss(network(7, 5, 6), target) + 0.01 * rough

    return network, torch.optim.Adam(network.parameters(), 0.05), loss, 1


for make in (residual_encoder_unet, mednext, radiance_grid):
    network, optimizer, loss, norm = make()
    losses = []
    for _ in range(6):
        optimizer.zero_grad()
        y = loss()
        y.backward()
        nn.utils.clip_grad_norm_(network.parameters(), norm)
        optimizer.step()
        losses.append(y.item())
    print(make.__name__, len(list(network.parameters())), ", ".join(f"{y:.16g}" for y in losses))
