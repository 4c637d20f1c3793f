"""The same steps in PyTorch's DistributedDataParallel; rank 0 prints one line of JSON."""

import argparse
import json
import os
import sys
import time
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from networks.models import UNET, Network, UNet  # noqa: E402


def measure(args, device, step):
    """The median time of a step in ms, on the slowest rank."""
    def synchronize():
        if device.type == "cuda":
            torch.cuda.synchronize()

    times = []
    for i in range(args.warm_up + args.steps):
        synchronize()
        dist.barrier()
        begin = time.perf_counter()
        step()
        synchronize()
        slowest = torch.tensor(1000 * (time.perf_counter() - begin), device=device)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        if i >= args.warm_up:
            times.append(slowest.item())
    return sorted(times)[len(times) // 2]


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--device")
    a.add_argument("--precision")
    a.add_argument("--channels-last", type=int, default=0)
    for name in ("size", "batch", "narrow", "steps", "warm-up"):
        a.add_argument("--" + name, type=int)
    args = a.parse_args()
    cuda = args.device == "cuda"
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(int(os.environ.get("VOXGRAD_NUM_THREADS", torch.get_num_threads())))
    dist.init_process_group("nccl" if cuda else "gloo")
    warnings.filterwarnings("ignore", message="Grad strides do not match")  # of the 1x1x1 convolution
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = args.precision == "high"
    dtype = torch.bfloat16 if args.precision == "bf16" else torch.float32
    layout = torch.channels_last_3d if args.channels_last else torch.contiguous_format

    network = Network("unet", "unet", args.batch, args.size, "adamw", tuple(c // args.narrow for c in UNET))
    net = UNet(network.channels).to(device, dtype).to(memory_format=layout)
    parallel = DistributedDataParallel(net, device_ids=[device] if cuda else None, gradient_as_bucket_view=True)
    optimiser = torch.optim.AdamW(net.parameters(), lr=1e-3, **({"fused": True} if cuda else {}))
    x, target = network.data(device)
    x = x.to(dtype).to(memory_format=layout)

    def step():
        optimiser.zero_grad(set_to_none=True)
        network.loss(parallel(x), target).backward()
        optimiser.step()

    def alone():
        with parallel.no_sync():
            step()

    ms, ms_alone = measure(args, device, step), measure(args, device, alone)
    if dist.get_rank() == 0:
        print(json.dumps({"library": "PyTorch", "ranks": dist.get_world_size(), "ms": ms, "ms_alone": ms_alone}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
