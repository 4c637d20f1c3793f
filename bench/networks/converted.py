#!/usr/bin/env python3
"""Training steps of PyTorch's networks on a GPU, plain, after voxgrad.torch.convert and compiled.

PyTorch runs with TF32 and cuDNN's autotuning, contiguous and channels last; autocast to bf16, or f32. "inductor" and
"backend voxgrad" are torch.compile, with "graphs" in the mode reduce-overhead; "captured" is a CUDA graph of the whole
step, the optimizer's too. SegResNet is MONAI's, where that is installed. Memory is the peak of PyTorch's allocator, and
what voxgrad's pool holds at the end. VOXGRAD_LIBRARY names the package's library."""

import argparse
import importlib.util
import sys
import time
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "python")]
import voxgrad.torch.backend  # noqa: E402
from models import NETWORKS, Network  # noqa: E402

CONVOLUTIONS = [torch.nn.Conv3d, torch.nn.ConvTranspose3d]
WAYS = ("contiguous", "channels last", "converted convolutions", "converted", "inductor, channels last",
        "inductor, channels last, graphs", "backend voxgrad", "backend voxgrad, graphs",
        "channels last, captured", "converted, captured")


class SegResNet(Network):
    is_unet = True  # in its data and loss

    def build(self):
        from monai.networks.nets import SegResNet
        return SegResNet(spatial_dims=3, init_filters=16, in_channels=1, out_channels=2, blocks_down=(1, 2, 2, 4))


if importlib.util.find_spec("monai"):
    NETWORKS.append(SegResNet("segresnet128", "segresnet", 2, 128, "adamw"))


def step_of(network, how, autocast):
    """One training step of the network, as a function."""
    torch.manual_seed(0)
    model = network.build().cuda()
    x, target = network.data("cuda")
    if "channels last" in how:
        model, x = (t.to(memory_format=torch.channels_last_3d) for t in (model, x))
    if how.startswith("converted"):
        voxgrad.torch.convert(model, verbose=False, **({"layers": CONVOLUTIONS} if "convolutions" in how else {}))
    run = model
    if how.startswith(("inductor", "backend")):
        torch.compiler.reset()
        run = torch.compile(model, backend="inductor" if how.startswith("inductor") else "voxgrad",
                            mode="reduce-overhead" if "graphs" in how else "default")
    optimizer = torch.optim.AdamW(model.parameters(), fused=True, capturable="captured" in how)

    def step():
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            y = run(x)
        network.loss(y.float(), target).backward()
        optimizer.step()
    return captured(step) if "captured" in how else step


def captured(step):
    """What runs the step as one CUDA graph."""
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):  # PyTorch's rule: warm up on another stream
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def measure(network, how, autocast):
    """Milliseconds, the least of three means, and gigabytes."""
    step, best = step_of(network, how, autocast), float("inf")
    torch.cuda.reset_peak_memory_stats()
    for _ in range(4):
        step()
    for _ in range(3):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(8):
            step()
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - begin) / 8)
    return 1e3 * best, torch.cuda.max_memory_allocated() / 1e9, voxgrad.memory()[1] / 1e9


def main():
    a = argparse.ArgumentParser(prog="converted.py", description=__doc__)
    a.add_argument("networks", nargs="*", help=f"of {', '.join(n.name for n in NETWORKS)} (default: all)")
    a.add_argument("--ways", default=",".join(map(str, range(len(WAYS)))),
                   help="numbers, of " + ", ".join(f"{i} {way}" for i, way in enumerate(WAYS)))
    a.add_argument("--precisions", default="bf16,tf32")
    options = a.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.benchmark = True
    voxgrad.torch.set_precision("high")
    print(torch.cuda.get_device_name(), "PyTorch", torch.__version__)
    for network in NETWORKS:
        if options.networks and network.name not in options.networks:
            continue
        for precision in options.precisions.split(","):
            for how in (WAYS[int(number)] for number in options.ways.split(",")):
                ms, theirs, ours = measure(network, how, precision == "bf16")
                torch.cuda.empty_cache(), voxgrad.empty_cache()
                print(f"{network.name}, {precision}, {how}: {ms:.2f} ms, {theirs:.2f} + {ours:.2f} GB", flush=True)


if __name__ == "__main__":
    main()
