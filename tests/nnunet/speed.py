#!/usr/bin/env python3
"""speed.py PROGRAM FOLDER: seconds and peak memory of `voxgrad_nnunet predict` (PROGRAM) beside nnUNetv2_predict, if that is
installed, in turns, on the models and scans that reference.py left in FOLDER.

With --volume D,H,W, FOLDER gets a scan of that size and nnU-Net's largest network (32 to 320 channels) with random weights.
With --forms, PyTorch's loop over windows takes part too, as nnU-Net has it, with the network in these forms. Needs torch."""
import argparse
import gzip
import itertools
import json
import math
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "examples/06_nnunet"), str(ROOT / "bench/nnunet_job")]
import convert
import network
import numpy as np
import torch

# Runs a program and prints its status, CPU seconds and peak memory. (A child of this process begins with its peak.)
START = """import resource, subprocess, sys
status = subprocess.run(sys.argv[1:]).returncode
u = resource.getrusage(resource.RUSAGE_CHILDREN)
print(status, u.ru_utime + u.ru_stime, u.ru_maxrss / 1e3)"""
FORMS = ("contiguous", "channels last", "compiled", "compiled channels last")


def make_scan(file, size, seed):
    """A CT of waves and noise, as NIfTI."""
    waves = [np.sin(np.arange(n, dtype=np.float32) / 9) * 30 for n in size]
    volume = np.random.default_rng(seed).standard_normal(size, np.float32) * 8 + 110
    volume += waves[0][:, None, None] + waves[1][:, None] + waves[2]
    header = bytearray(352)
    struct.pack_into("<i", header, 0, 348)
    struct.pack_into("<8h", header, 40, 3, *size[::-1], 1, 1, 1, 1)
    struct.pack_into("<3h4f", header, 70, 4, 16, 0, 0, 1, 1, 1)
    struct.pack_into("<ff", header, 108, 352, 1)
    struct.pack_into("<h", header, 252, 1)
    header[344:347] = b"n+1"
    with gzip.open(file, "wb", 1) as out:
        out.write(header + volume.clip(1).astype(np.int16).tobytes())


def make_case(case, o):
    (case / "images").mkdir(parents=True, exist_ok=True)
    for i in range(o.scans):
        make_scan(case / f"images/scan{i}_0000.nii.gz", o.volume, i)
    model, like = case / "model", ROOT / "tests/data/nnunet/iso"
    (model / "fold_0").mkdir(parents=True)
    (model / "dataset.json").write_bytes((like / "dataset.json").read_bytes())
    plans, stages = json.loads((like / "plans.json").read_text()), len(network.CHANNELS)
    settings = plans["configurations"]["3d_fullres"]
    settings["patch_size"] = [o.patch] * 3
    settings["architecture"]["arch_kwargs"] |= {
        "n_stages": stages, "features_per_stage": network.CHANNELS, "kernel_sizes": [[3] * 3] * stages,
        "strides": [[1] * 3] + [[2] * 3] * (stages - 1), "n_conv_per_stage": [2] * stages,
        "n_conv_per_stage_decoder": [2] * (stages - 1)}
    (model / "plans.json").write_text(json.dumps(plans))
    torch.manual_seed(1)
    weights = network.UNet().state_dict()
    for name, tensor in list(weights.items()):  # nnU-Net's modules list these twice
        weights[name.replace(".conv.", ".all_modules.0.").replace(".norm.", ".all_modules.1.")] = tensor
    weights |= {"decoder." + name: tensor for name, tensor in weights.items() if name.startswith("encoder.")}
    file = model / "fold_0/checkpoint_final.pth"
    torch.save({"network_weights": weights, "trainer_name": "nnUNetTrainer", "inference_allowed_mirroring_axes": (0, 1, 2),
                "init_args": {"configuration": "3d_fullres"}}, file)
    convert.convert(file)


def starts(size, patch):
    gaps = math.ceil((size - patch) / (patch / 2))
    return [round((size - patch) / max(gaps, 1) * i) for i in range(gaps + 1)]


@torch.inference_mode()
def predict_windows(net, scan, patch, o):
    """nnU-Net's predict_sliding_window_return_logits: all on the device, sums in f16 there."""
    layout = torch.channels_last_3d if "last" in o.form else torch.contiguous_format
    ramp = torch.arange(patch, device=o.device) - patch // 2
    bell = torch.exp(-(ramp * 8 / patch)**2 / 2)
    bell = (10 * bell[:, None, None] * bell[:, None] * bell).half()
    bell[bell == 0] = bell[bell > 0].min()
    logits, weights = (torch.zeros((n, *scan.shape[1:]), dtype=torch.half, device=o.device) for n in (3, 1))
    axes = [a for n in range(4) for a in itertools.combinations((2, 3, 4), n)] if o.mirror else [()]
    for corner in itertools.product(*[starts(n, patch) for n in scan.shape[1:]]):
        box = (slice(None), *[slice(c, c + patch) for c in corner])
        x, y = scan[box][None].contiguous(memory_format=layout), 0
        with torch.autocast(o.device, torch.bfloat16 if o.precision == "bf16" else torch.half, o.precision in ("f16", "bf16")):
            for flips in axes:
                y = y + net(x.flip(flips) if flips else x).flip(flips)
        logits[box] += (y[0] / len(axes)).half() * bell
        weights[box] += bell
    return (logits / weights).cpu()


def windows(case, out, o):
    """The mask of the first scan as PyTorch's loop makes it."""
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = o.precision != "f32"
    weights = torch.load(case / "model/fold_0/checkpoint_final.pth")["network_weights"]
    plans = json.loads((case / "model/plans.json").read_text())
    ct = plans["foreground_intensity_properties_per_channel"]["0"]
    patch = plans["configurations"]["3d_fullres"]["patch_size"][0]
    net = network.UNet()
    net.load_state_dict({name: tensor for name, tensor in weights.items() if not convert.is_alias(name)})
    net.to(o.device, memory_format=torch.channels_last_3d if "last" in o.form else torch.contiguous_format).eval()
    net = torch.compile(net, dynamic=False) if "compiled" in o.form else net
    with gzip.open(case / "images/scan0_0000.nii.gz") as file:
        size = struct.unpack_from("<3h", file.read(352), 42)[::-1]
        scan = torch.frombuffer(bytearray(file.read()), dtype=torch.int16).reshape(1, *size)
    scan = ((scan.clamp(ct["percentile_00_5"], ct["percentile_99_5"]) - ct["mean"]) / ct["std"]).to(o.device)
    predict_windows(net, scan[:, :patch, :patch, :patch + patch // 2], patch, o)  # compiles, and chooses kernels
    start = time.perf_counter()
    logits = predict_windows(net, scan, patch, o)
    print(f"{time.perf_counter() - start:.3f} s for the network")
    out.mkdir()
    with gzip.open(out / "scan0.nii.gz", "wb", 1) as file:
        file.write(bytes(352) + logits.float().argmax(0).byte().numpy().tobytes())


def run(command, o):
    """Seconds of a process, its CPU seconds, seconds of a scan and of its network that it prints, and megabytes of host and
    GPU at the most."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(o.threads)}
    environment |= {f"nnUNet_{folder}": "/tmp" for folder in ("raw", "preprocessed", "results")}
    query = ["nvidia-smi", "-i", "0", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-lms", "50"]
    watch = subprocess.Popen(query, stdout=subprocess.PIPE, text=True) if o.device == "cuda" else None
    start = time.perf_counter()
    text = subprocess.run([sys.executable, "-c", START, *map(str, command)], env=environment,
                          stdout=subprocess.PIPE, text=True).stdout
    seconds, gpu = time.perf_counter() - start, [0]
    if watch:
        watch.terminate()
        gpu = [int(line) for line in watch.communicate()[0].split()] or gpu
    status, cpu, megabytes = map(float, text.splitlines()[-1].split())
    if status:
        print(f"failed: {' '.join(map(str, command))}", flush=True)
    least = [min(map(float, re.findall(pattern, text)), default=math.nan)
             for pattern in (r": ([\d.]+) s", r"([\d.]+) s for the network")]
    return seconds, cpu, *least, megabytes, max(gpu) - min(gpu)


def voxels(folder):
    """Those of the first mask, behind its header."""
    masks = sorted(pathlib.Path(folder).glob("*.nii.gz"))
    return np.frombuffer(gzip.decompress(masks[0].read_bytes())[352:] if masks else b"", np.uint8)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="f32", help="f32, tf32, bf16 or f16")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--no-mirroring", dest="mirror", action="store_false")
    parser.add_argument("--volume", type=lambda s: tuple(map(int, s.split(","))))
    parser.add_argument("--patch", type=int, default=128, help="with --volume")
    parser.add_argument("--scans", type=int, default=1, help="with --volume; the first one warms the GPU up")
    parser.add_argument("--forms", default="", help=f"comma-separated, of: {', '.join(FORMS)}")
    parser.add_argument("--form", help=argparse.SUPPRESS)  # this process is one of them
    o = parser.parse_args()
    if o.form:
        return windows(o.folder, pathlib.Path(o.program), o)
    if o.volume and not (o.folder / "full").exists():
        make_case(o.folder / "full", o)
    theirs = pathlib.Path(sys.executable).parent / "nnUNetv2_predict_from_modelfolder"
    common = ["--device", o.device, "--precision", o.precision, *([] if o.mirror else ["--no-mirroring"])]
    for model in sorted(path.parent for path in o.folder.glob("*/model/plans.json")):
        case, folds = model.parent, [fold.name.removeprefix("fold_") for fold in sorted(model.glob("fold_*"))]
        images = case / "images"
        commands = {"voxgrad": lambda out: [o.program, "predict", "--model", model, "--input", images, "--output", out,
                                            "--threads", o.threads, *common]}
        if theirs.exists():
            commands["nnU-Net"] = lambda out: [theirs, "-i", images, "-o", out, "-m", model, "-f", *folds, "-device",
                                               o.device, "-npp", "1", "-nps", "1", *([] if o.mirror else ["--disable_tta"])]
        for form in filter(None, o.forms.split(",")):
            commands[f"PyTorch, {form}"] = lambda out, form=form: [sys.executable, __file__, out, case, "--form", form, *common]
        with tempfile.TemporaryDirectory() as out:
            results = {name: [] for name in commands}
            for i, (name, command) in itertools.product(range(o.repeat), commands.items()):
                results[name].append(run(command(f"{out}/{name}{i}"), o))
                if i + 1 < o.repeat:
                    continue
                columns = zip([min] * 4 + [max] * 2, zip(*results[name]))
                process, cpu, scan, net, host, gpu = (best(column) for best, column in columns)
                mask, ours = voxels(f"{out}/{name}0"), voxels(f"{out}/voxgrad0")
                same = (mask == ours).mean() if len(mask) == len(ours) else math.nan
                print(f"{case.name}, {name}: process {process:.2f} s (CPU {cpu:.2f} s), a scan {scan:.2f} s, its network "
                      f"{net:.2f} s; at most {host:.0f} MB (largest process), GPU {gpu} MB; "
                      f"{100 * same:.3f} % of the mask as voxgrad's", flush=True)


if __name__ == "__main__":
    main()
