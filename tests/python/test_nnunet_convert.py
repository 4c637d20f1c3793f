"""examples/06_nnunet/convert.py on checkpoints as nnU-Net v2 writes them."""

import json
import subprocess
import sys
from pathlib import Path

import torch

CONVERT = Path(__file__).resolve().parent.parent.parent / "examples" / "06_nnunet" / "convert.py"


def converted(folder):
    return subprocess.run([sys.executable, CONVERT, folder], capture_output=True, text=True)


def save(path, weights, **further):
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"network_weights": weights, "trainer_name": "nnUNetTrainer", "init_args": {"configuration": "3d_fullres"},
                **further}, path)


def read(path):
    """The metadata of a file of safetensors, and its tensors as (dtype, shape, bytes)."""
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8:8 + size]), content[8 + size:]
    assert size % 8 == 0
    metadata = header.pop("__metadata__")
    return metadata, {name: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for name, t in header.items()}


def test_weights_are_copied_once_each(tmp_path):
    weight, bias = torch.randn(4, 2, 3, 3, 3), torch.randn(4).half()
    transposed = torch.arange(6, dtype=torch.float64).reshape(2, 3).t()  # not contiguous
    save(tmp_path / "fold_0" / "checkpoint_final.pth", {
        "module._orig_mod.encoder.conv.weight": weight, "encoder.conv.bias": bias, "steps": torch.tensor(7),
        "encoder.all_modules.0.weight": weight, "decoder.encoder.conv.weight": weight, "seg.weight": transposed,
    }, inference_allowed_mirroring_axes=(0, 2))
    save(tmp_path / "fold_1" / "checkpoint_final.pth", {"bias": bias}, inference_allowed_mirroring_axes=None)
    run = converted(tmp_path)
    assert run.returncode == 0, run.stderr
    metadata, tensors = read(tmp_path / "fold_0" / "checkpoint_final.safetensors")
    assert metadata == {"trainer": "nnUNetTrainer", "configuration": "3d_fullres", "mirrored_axes": "[0, 2]"}
    assert tensors == {
        "encoder.conv.weight": ("F32", [4, 2, 3, 3, 3], weight.numpy().tobytes()),
        "encoder.conv.bias": ("F16", [4], bias.numpy().tobytes()),
        "seg.weight": ("F64", [3, 2], transposed.numpy().tobytes()),
        "steps": ("I64", [], torch.tensor(7).numpy().tobytes()),
    }
    assert read(tmp_path / "fold_1" / "checkpoint_final.safetensors")[0]["mirrored_axes"] == "[]"


def test_errors_name_the_file_and_write_nothing(tmp_path):
    run = converted(tmp_path)
    assert run.returncode == 1 and "there is no fold_*/checkpoint_final.pth" in run.stderr
    (tmp_path / "fold_0").mkdir()
    broken = tmp_path / "fold_0" / "checkpoint_final.pth"
    broken.write_bytes(b"no checkpoint")
    run = converted(tmp_path)
    assert run.returncode == 1 and f"{broken}: no checkpoint of nnU-Net v2" in run.stderr
    torch.save({"state_dict": {}}, broken)
    run = converted(tmp_path)
    assert run.returncode == 1 and "KeyError: 'network_weights'" in run.stderr
    assert list(tmp_path.rglob("*")) == [tmp_path / "fold_0", broken]
