#!/usr/bin/env python3
"""convert.py MODEL_FOLDER: writes fold_*/checkpoint_final.safetensors, which voxgrad_nnunet reads, beside each
checkpoint_final.pth of a model folder of nnU-Net v2. Needs torch alone."""
import ctypes
import json
import pathlib
import struct
import sys

import torch

DTYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.float64: "F64", torch.int64: "I64",
          torch.uint8: "U8"}


def is_alias(name):
    """Whether nnU-Net's modules list the same tensor under another name too."""
    return ".all_modules." in name or name.startswith("decoder.encoder.")


def write_safetensors(path, tensors, metadata):
    header, offset, blobs = {"__metadata__": metadata}, 0, []
    for name, tensor in sorted(tensors.items()):
        tensor = tensor.contiguous()
        blob = ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())
        end = offset + len(blob)
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
        blobs.append(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    part = path.with_suffix(".part")
    with open(part, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.writelines(blobs)
    part.rename(path)


def convert(checkpoint_file):
    checkpoint = torch.load(checkpoint_file, map_location="cpu", weights_only=False)
    weights = {name.removeprefix("module.").removeprefix("_orig_mod."): tensor
               for name, tensor in checkpoint["network_weights"].items()}
    weights = {name: tensor for name, tensor in weights.items() if not is_alias(name)}
    axes = checkpoint.get("inference_allowed_mirroring_axes")
    metadata = {
        "trainer": checkpoint["trainer_name"],
        "configuration": checkpoint["init_args"]["configuration"],
        "mirrored_axes": json.dumps([int(axis) for axis in axes or ()]),
    }
    target = checkpoint_file.with_suffix(".safetensors")
    write_safetensors(target, weights, metadata)
    print(f"{target}: {len(weights)} tensors, {metadata}")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    checkpoints = sorted(pathlib.Path(sys.argv[1]).glob("fold_*/checkpoint_final.pth"))
    if not checkpoints:
        sys.exit(f"{sys.argv[1]}: there is no fold_*/checkpoint_final.pth")
    for checkpoint in checkpoints:
        try:
            convert(checkpoint)
        except Exception as error:  # torch.load has many kinds for a broken file
            reason = str(error).strip().split("\n")[0]
            sys.exit(f"{checkpoint}: no checkpoint of nnU-Net v2: {type(error).__name__}: {reason}")


if __name__ == "__main__":
    main()
