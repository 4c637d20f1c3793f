#!/usr/bin/env python3
"""Layers in f32 on a CPU, forward and backward: voxgrad's time over PyTorch's, in alternation. modules.py of voxgrad.torch
leaves to PyTorch what is above 1 here; with --models, training steps of the models of tests/python/test_models.py as
convert() leaves them. VOXGRAD_LIBRARY names the package's library."""

import argparse
import copy
import statistics
import sys
import time
from pathlib import Path

import torch
from torch import nn

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests/python")]
import voxgrad.torch  # noqa: E402

SHAPES = [(2, 16, n, n, n) for n in (4, 8, 16, 24)] + [(1, 320, 4, 4, 4), (1, 320, 8, 8, 8), (2, 32, 32, 32, 32)]


def layers(channels):
    return [nn.BatchNorm3d(channels), nn.InstanceNorm3d(channels, affine=True), nn.GroupNorm(8, channels),
            nn.Sequential(nn.InstanceNorm3d(channels, affine=True), nn.LeakyReLU()),
            nn.Sequential(nn.GroupNorm(8, channels), nn.LeakyReLU()),
            nn.ReLU(), nn.LeakyReLU(), nn.PReLU(), nn.ELU(), nn.GELU(), nn.SiLU(), nn.Mish(), nn.Tanh(), nn.Softplus(),
            nn.Softmax(1), nn.MaxPool3d(2), nn.AvgPool3d(2), nn.AdaptiveAvgPool3d(1), nn.Upsample(scale_factor=2),
            nn.Upsample(scale_factor=2, mode="trilinear")]


def convolutions():
    for ins, outs in ((1, 16), (8, 8), (16, 16), (32, 32), (64, 64), (128, 128), (256, 256)):
        for batch in (1, 2):
            for n in (4, 8, 16, 32, 48, 64):
                if ins * outs * n**3 * batch < 3e8:
                    for layer in (nn.Conv3d(ins, outs, 3, padding=1), nn.Conv3d(ins, outs, 3, 2, 1), nn.Conv3d(ins, outs, 1),
                                  nn.ConvTranspose3d(ins, outs, 2, 2)):
                        yield layer, (batch, ins, n, n, n)


def models():
    import test_models  # needs MONAI, dynamic-network-architectures and torchvision
    for name in test_models.MODELS:
        if name not in test_models.SLOW:
            model, x = test_models.made(name, "cpu", torch.float32)
            yield name, model, tuple(x.shape)


def times(theirs, shape, seconds):
    """Microseconds of a forward and backward, PyTorch's and voxgrad's."""
    ours, x = copy.deepcopy(theirs), torch.randn(shape, requires_grad=True)
    voxgrad.torch.convert(ours, verbose=False)
    grad = torch.ones_like(theirs(x))
    taken = {theirs: [], ours: []}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(taken[ours]) < 6:
        for model, all_times in taken.items():
            begin = time.perf_counter()
            model(x).backward(grad)
            all_times.append(time.perf_counter() - begin)
    return [1e6 * statistics.median(all_times) for all_times in taken.values()]


if __name__ == "__main__":
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("--threads", type=int, default=2)
    a.add_argument("--seconds", type=float, default=0.3, help="for each layer or model")
    a.add_argument("--models", action="store_true")
    args = a.parse_args()
    torch.set_num_threads(args.threads)
    voxgrad.torch.modules.leave_to_pytorch_on_cpu = args.models
    all_layers = [(layer, shape) for shape in SHAPES for layer in layers(shape[1])] + list(convolutions())
    print("PyTorch us  voxgrad us  ratio")
    for name, model, shape in models() if args.models else ((" ".join(str(x).split()), x, shape) for x, shape in all_layers):
        theirs, ours = times(model, shape, args.seconds)
        print(f"{theirs:10.0f}  {ours:10.0f}  {ours / theirs:5.2f}  {name} {shape}", flush=True)
