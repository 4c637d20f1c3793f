#!/usr/bin/env python3
"""Training steps of PyTorch's networks, plain, after voxgrad.torch.convert and compiled: converted.py [network]... on a GPU.

PyTorch runs with TF32 and cuDNN's autotuning, contiguous and channels last; autocast to bf16, or f32. "inductor" and
"backend voxgrad" are torch.compile, with "graphs" in the mode reduce-overhead. Memory is the peak of PyTorch's allocator,
and what voxgrad's pool holds at the end. VOXGRAD_LIBRARY names the package's library."""

import sys
import time
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "python")]
import voxgrad.torch.backend  # noqa: E402
from models import NETWORKS  # noqa: E402

CONVOLUTIONS = [torch.nn.Conv3d, torch.nn.ConvTranspose3d]
WAYS = ("contiguous", "channels last", "converted convolutions", "converted", "inductor, channels last",
        "inductor, channels last, graphs", "backend voxgrad", "backend voxgrad, graphs")


def step_of(network, how, autocast):
    """One training step of the network, as a function."""
    torch.manual_seed(0)
    model = network.build().cuda()
    x, target = network.data("cuda")
    if "channels last" in how:
        model, x = (t.to(memory_format=torch.channels_last_3d) for t in (model, x))
    if how.startswith("converted"):
        voxgrad.torch.convert(model, verbose=False, **({} if how == "converted" else {"layers": CONVOLUTIONS}))
    run = model
    if how.startswith(("inductor", "backend")):
        torch.compiler.reset()
        run = torch.compile(model, backend="inductor" if how.startswith("inductor") else "voxgrad",
                            mode="reduce-overhead" if "graphs" in how else "default")
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def step():
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            y = run(x)
        network.loss(y.float(), target).backward()
        optimizer.step()
    return step


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
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.benchmark = True
    voxgrad.torch.set_precision("high")
    print(torch.cuda.get_device_name(), "PyTorch", torch.__version__)
    for network in NETWORKS:
        if sys.argv[1:] and network.name not in sys.argv[1:]:
            continue
        for autocast in (True, False):
            for how in WAYS:
                ms, theirs, ours = measure(network, how, autocast)
                torch.cuda.empty_cache(), voxgrad.empty_cache()
                print(f"{network.name}, {'bf16 autocast' if autocast else 'f32, TF32'}, {how}: {ms:.2f} ms, "
                      f"{theirs:.2f} + {ours:.2f} GB", flush=True)


if __name__ == "__main__":
    main()
