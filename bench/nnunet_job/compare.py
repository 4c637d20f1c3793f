#!/usr/bin/env python3
"""compare.py FILE [--device cuda] [--autocast]: the losses of `bench_nnunet_job --record FILE` beside PyTorch's from the
same weights and boxes, and from the same weights with a last bit changed, which shows the noise. Needs torch."""
import argparse
import json
import pathlib
import struct
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1]), str(pathlib.Path(__file__).resolve().parents[1] / "networks")]
import torch
from models import UNet

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


def train(get, names, device, autocast, change=0.0):
    weights = {name.removeprefix("weights."): get(name) for name in names if name.startswith("weights.")}
    channels = [weights[f"down.{i}.0.weight"].shape[0] for i in range(sum(n.startswith("down.") and n.endswith(".0.weight") for n in weights))]
    network = UNet(channels, nnunet=True)
    network.head = torch.nn.Conv3d(channels[0], 3, 1)
    network.load_state_dict({name: weight * (1 + change) for name, weight in weights.items()})
    network.to(device)
    sgd = torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.99, nesterov=True)
    losses = []
    for i in range(sum(name.startswith("image.") for name in names)):
        sgd.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=autocast):
            logits = network(get(f"image.{i}").float().to(device))
        loss = loss_of(logits, get(f"label.{i}").long().to(device))
        loss.backward()
        sgd.step()
        losses.append(loss.detach())
    return torch.stack(losses).cpu()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--autocast", action="store_true")
    options = parser.parse_args()
    with open(options.file, "rb") as file:
        get, names = read(file)
        ours = get("losses")
        theirs, changed = (train(get, names, options.device, options.autocast, change) for change in (0, 2.0**-22))
    for i in [*range(0, len(ours), max(1, len(ours) // 10)), len(ours) - 1]:
        print(f"step {i:4}: voxgrad {ours[i]:.6f}, PyTorch {theirs[i]:.6f}, changed by 2^-22 {changed[i]:.6f}")
    tail = len(ours) // 5 or 1
    means = [x[-tail:].mean() for x in (ours, theirs, changed)]
    print(f"largest difference to PyTorch {(ours - theirs).abs().max():.2e}, of two PyTorchs {(theirs - changed).abs().max():.2e}")
    print("mean of the last fifth: voxgrad {:.6f}, PyTorch {:.6f}, changed {:.6f}".format(*means))


if __name__ == "__main__":
    main()
