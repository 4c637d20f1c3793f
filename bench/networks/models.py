"""The networks in PyTorch, with the same parameters by the same names as in shim.cpp."""

from dataclasses import dataclass, replace

import torch
from torch import nn

from common.optimisers import optimiser_of


class Cat(nn.Module):
    """cat() as a module, so that the layer profile sees it."""

    def forward(self, a, b):
        return torch.cat([a, b], 1)


def block(c_in, c_out, stride, nnunet):
    layers = []
    for i in range(2):
        layers.append(nn.Conv3d(c_out if i else c_in, c_out, 3, stride=1 if i else stride, padding=1))
        layers.append(nn.InstanceNorm3d(c_out, affine=True) if nnunet else nn.BatchNorm3d(c_out))
        layers.append(nn.LeakyReLU(0.01) if nnunet else nn.ReLU())
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """A 3-D U-Net. With `nnunet`, nnU-Net's: instance norm, leaky ReLU, strided convolutions instead of pooling."""

    def __init__(self, channels, nnunet=False):
        super().__init__()
        self.down, self.up, self.merge = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for i, c in enumerate(channels):
            stride = 2 if nnunet and i else 1
            self.down.append(block(channels[i - 1] if i else 1, c, stride, nnunet))
        for c, below in zip(channels, channels[1:]):
            self.up.append(nn.ConvTranspose3d(below, c, 2, stride=2))
            self.merge.append(block(2 * c, c, 1, nnunet))
        self.head = nn.Conv3d(channels[0], 2, 1)
        self.pool = None if nnunet else nn.MaxPool3d(2)
        self.cat = Cat()

    def forward(self, x):
        skips = []
        for i, down in enumerate(self.down):
            if i and self.pool:
                x = self.pool(x)
            x = down(x)
            skips.append(x)
        for skip, up, merge in reversed(list(zip(skips, self.up, self.merge))):
            x = merge(self.cat(skip, up(x)))
        return self.head(x)


def decoder(channels):
    layers = []
    for c_in, c_out in zip(channels, channels[1:]):
        layers.append(nn.ConvTranspose3d(c_in, c_out, 4, stride=2, padding=1))
        layers += [nn.BatchNorm3d(c_out), nn.ReLU()] if c_out > 1 else [nn.Sigmoid()]
    return nn.Sequential(*layers)


class SuperResolution(nn.Module):
    """The network of examples/04_mri_super_resolution/network.h."""

    def __init__(self):
        super().__init__()
        self.extract = nn.Conv3d(1, 16, 3, padding=1)
        self.refine = nn.ModuleList(nn.Conv3d(16, 16, 3, padding=1) for _ in range(2))
        self.upsample = nn.ConvTranspose3d(16, 1, 4, stride=2, padding=1)
        self.relu, self.trilinear = nn.ReLU(), nn.Upsample(scale_factor=2, mode="trilinear")

    def forward(self, low):
        features = self.relu(self.extract(low))
        for conv in self.refine:
            features = features + self.relu(conv(features))
        return self.trilinear(low) + self.upsample(features)


@dataclass
class Network:
    name: str
    family: str  # its name in shim.cpp
    batch: int
    size: int  # cells of the input along each axis
    optimiser: str  # adam, adamw or sgd
    channels: tuple = ()  # of a U-Net's levels, or between a decoder's layers
    factor: int = 1  # cells of the output / cells of the input, along each axis

    @property
    def is_unet(self):
        return self.family in ("unet", "nnunet")

    def resized(self, size):
        """The network with `size` output cells along each axis. A U-Net keeps the levels with at least two cells."""
        levels = size.bit_length() - 1 if self.is_unet else None
        return replace(self, size=max(1, size // self.factor), channels=self.channels[:levels])

    def narrowed(self, divisor):
        """The network with 1 / `divisor` of the channels."""
        return replace(self, channels=tuple(max(1, c // divisor) for c in self.channels))

    def build(self):
        if self.is_unet:
            return UNet(self.channels, self.family == "nnunet")
        return decoder(self.channels) if self.family == "decoder" else SuperResolution()

    def data(self, device):
        """A batch and its target."""
        size, n = (self.size,) * 3, self.batch
        x = torch.randn(n, self.channels[0] if self.family == "decoder" else 1, *size, device=device)
        if self.is_unet:
            return x, torch.randint(2, (n, *size), device=device)
        return x, torch.rand(n, 1, *(self.factor * s for s in size), device=device)

    def loss(self, y, target):
        if self.is_unet:
            return nn.functional.cross_entropy(y, target)
        return nn.functional.mse_loss(y, target.to(y.dtype))


UNET, NNUNET = (32, 64, 128, 256), (32, 64, 128, 256, 320, 320)
NETWORKS = [Network("unet128", "unet", 2, 128, "adamw", UNET), Network("unet64", "unet", 2, 64, "adamw", UNET),
            Network("decoder", "decoder", 16, 4, "adam", (256, 128, 64, 32, 1), 16),
            Network("example04", "example04", 8, 16, "adam", factor=2),
            Network("nnunet128", "nnunet", 2, 128, "sgd", NNUNET)]


@dataclass
class Form:
    """How PyTorch computes a network."""

    dtype: torch.dtype = torch.float32  # of the parameters
    autocast: bool = False
    channels_last: bool = False
    compiled: bool = False

    @property
    def name(self):
        return ", ".join([{torch.float32: "f32", torch.bfloat16: "bf16", torch.float64: "f64"}[self.dtype]]
                         + ["autocast"] * self.autocast + ["channels last"] * self.channels_last
                         + ["compiled"] * self.compiled)


class Trainer:
    """A network in training. A call makes a step and returns the loss before it."""

    def __init__(self, network, form, state, x, target):
        self._network, self._form, self._target = network, form, target
        self._x = x.to(form.dtype)
        net = network.build()
        net.load_state_dict(state)
        net.to(x.device, form.dtype)
        if form.channels_last:
            net.to(memory_format=torch.channels_last_3d)
            self._x = self._x.to(memory_format=torch.channels_last_3d)
        self._optimiser = optimiser_of(network.optimiser, net.parameters())
        self._net = torch.compile(net, dynamic=False) if form.compiled else net

    def __call__(self):
        self._optimiser.zero_grad(set_to_none=True)
        with torch.autocast(self._x.device.type, torch.bfloat16, enabled=self._form.autocast):
            loss = self._network.loss(self._net(self._x), self._target)
        loss.backward()
        self._optimiser.step()
        return loss.detach()


def ours(library, network, state, x, target, parameters, compute):
    """A step of the same training in voxgrad, with parameters and arithmetic of these dtypes."""
    def cast(tensor, dtype):
        return tensor.to(x.device, dtype if tensor.is_floating_point() else tensor.dtype).contiguous()

    operands = [cast(x, compute), cast(target, compute), *(cast(v, parameters) for v in state.values())]
    return library.task("network", network.family, network.optimiser, operands, network.channels, ["", "", *state])
