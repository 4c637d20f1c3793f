#!/usr/bin/env python3
"""compare.py FILE [--device cuda] [--autocast]: the losses of `bench_nnunet_job --record FILE` beside PyTorch's from the
same weights and boxes. PyTorch trains four times, which shows its own noise: plain, from weights with a last bit changed,
with kernels for channels last, and with the boxes in another order. Needs torch."""
import argparse
import json
import random
import struct
import time

import torch
from network import UNet

DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "U8": torch.uint8, "I64": torch.int64}


def read(file):
    """A function from names to tensors, which reads each when it is asked for, and the names."""
    length, = struct.unpack("<Q", file.read(8))
    header = json.loads(file.read(length))
    header.pop("__metadata__", None)

    def get(name):
        entry = header[name]
        file.seek(8 + length + entry["data_offsets"][0])
        data = bytearray(file.read(entry["data_offsets"][1] - entry["data_offsets"][0]))
        return torch.frombuffer(data, dtype=DTYPES[entry["dtype"]]).reshape(entry["shape"])

    return get, list(header)


def loss_of(logits, label):
    """Cross entropy minus the Dice of the two foreground classes over the batch."""
    x = logits.float()
    wanted = torch.nn.functional.one_hot(label, 3).movedim(-1, 1).float()[:, 1:]
    p, axes = x.softmax(1)[:, 1:], (0, 2, 3, 4)
    dice = (2 * (p * wanted).sum(axes) + 1e-5) / (p.sum(axes) + wanted.sum(axes) + 1e-5)
    return torch.nn.functional.cross_entropy(x, label) - dice.mean()


def deep_loss(logits, label):
    """The weighted mean over all resolutions but the coarsest; nnU-Net's weights are halved from one to the next."""
    total, weights = 0, [2.0**-i for i in range(max(1, len(logits) - 1))]
    for weight, x in zip(weights, logits):
        f = label.shape[1] // x.shape[2]
        total = total + weight / sum(weights) * loss_of(x, label[:, f // 2::f, f // 2::f, f // 2::f])
    return total


def train(get, names, options, change=0.0, layout=torch.contiguous_format, seed=None):
    weights = {name.removeprefix("weights."): get(name) for name in names if name.startswith("weights.")}
    network = UNet([weight.shape[0] for name, weight in weights.items()
                    if name.startswith("encoder") and name.endswith("convs.0.conv.weight")])
    network.load_state_dict({name: weight * (1 + change) for name, weight in weights.items()})
    network.to(options.device, memory_format=layout)
    sgd = torch.optim.SGD(network.parameters(), lr=1e-2, momentum=0.99, weight_decay=3e-5, nesterov=True)
    order = list(range(sum(name.startswith("image.") for name in names)))
    schedule = torch.optim.lr_scheduler.PolynomialLR(sgd, len(order), 0.9)
    if seed is not None:
        random.Random(seed).shuffle(order)
    losses, start = [], time.perf_counter()
    for i in order:
        sgd.zero_grad()
        image = get(f"image.{i}").float().to(options.device, memory_format=layout)
        with torch.autocast(options.device, torch.bfloat16, enabled=options.autocast):
            logits = network(image, deep=True)
        loss = deep_loss(logits, get(f"label.{i}").long().to(options.device))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 12)
        sgd.step()
        schedule.step()
        losses.append(loss.detach())
    losses = torch.stack(losses).cpu()
    gpu = torch.cuda.max_memory_reserved() / 1e6 if options.device == "cuda" else 0
    print(f"{len(order)} steps of PyTorch in {time.perf_counter() - start:.1f} s, GPU {gpu:.0f} MB at the most", flush=True)
    return losses


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--autocast", action="store_true")
    options = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = False
    with open(options.file, "rb") as file:
        get, names = read(file)
        losses = {"voxgrad": get("losses")}
        for name, how in {"PyTorch": {}, "bit changed": {"change": 2.0**-22},
                          "channels last": {"layout": torch.channels_last_3d}, "other order": {"seed": 1}}.items():
            losses[name] = train(get, names, options, **how)
    count, reference = len(losses["voxgrad"]), losses["PyTorch"]
    tail = count // 5 or 1
    print(f"{'step':24}" + "".join(f"{name:>15}" for name in losses))
    for i in [*range(0, count, max(1, count // 10)), count - 1]:
        print(f"{i:<24}" + "".join(f"{x[i]:15.6f}" for x in losses.values()))
    print(f"{'mean of the last fifth':24}" + "".join(f"{x[-tail:].mean():15.6f}" for x in losses.values()))
    parts = {"largest |x - PyTorch|": slice(None), "  in the first fifth": slice(tail),
             "  in the last fifth": slice(-tail, None)}
    for what, part in parts.items():
        print(f"{what:24}" + "".join(f"{(x - reference)[part].abs().max():15.2e}" for x in losses.values()))


if __name__ == "__main__":
    main()
