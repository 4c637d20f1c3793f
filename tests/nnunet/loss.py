#!/usr/bin/env python3
"""loss.py FILE: writes the loss that nnU-Net itself computes from logits of three resolutions, and its gradient, as
safetensors: for labels (`classes`), regions, and labels with voxels to ignore. Needs nnunetv2 from PyPI."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples/06_nnunet"))
import convert
import torch
from batchgeneratorsv2.transforms.utils.deep_supervision_downsampling import DownsampleSegForDSTransform
from nnunetv2.training.loss.compound_losses import DC_and_BCE_loss, DC_and_CE_loss
from nnunetv2.training.loss.deep_supervision import DeepSupervisionWrapper
from nnunetv2.training.loss.dice import MemoryEfficientSoftDiceLoss

SCALES = [[1, 1, 1], [1, 0.5, 0.5], [0.5, 0.25, 0.25], [0.25, 0.125, 0.125]]
SIZE = (4, 8, 16)


def main():
    torch.manual_seed(1)
    weights = torch.tensor([1, 0.5, 0.25, 0]) / 1.75
    record = {}
    for name in ("classes", "regions", "ignore"):
        for batch_dice in (False, True):
            dice = {"batch_dice": batch_dice, "smooth": 1e-5, "do_bg": name == "regions", "ddp": False}
            if name == "regions":
                loss = DC_and_BCE_loss({}, dice, dice_class=MemoryEfficientSoftDiceLoss)
            else:
                loss = DC_and_CE_loss(dice, {}, ignore_label=3 if name == "ignore" else None,
                                      dice_class=MemoryEfficientSoftDiceLoss)
            label = torch.randint(0, 4 if name == "ignore" else 3, (2, *SIZE))
            heads = torch.stack([label >= 1, label == 2], 1) if name == "regions" else label[:, None]
            targets = [DownsampleSegForDSTransform([scale])._apply_to_segmentation(
                heads.flatten(0, 1))[0].unflatten(0, (2, -1)) for scale in SCALES]
            logits = [torch.randn(2, 2 if name == "regions" else 3, *target.shape[2:]).requires_grad_() for target in targets]
            value = DeepSupervisionWrapper(loss, weights.tolist())(logits, targets)
            value.backward()
            key = f"{name}.{int(batch_dice)}."
            record |= {key + "label": label.to(torch.uint8), key + "loss": value.detach()}
            for i, x in enumerate(logits):
                record[f"{key}logits{i}"] = x.detach()
                if x.grad is not None:
                    record[f"{key}grad{i}"] = x.grad
    convert.write_safetensors(pathlib.Path(sys.argv[1]), record, {})


if __name__ == "__main__":
    main()
