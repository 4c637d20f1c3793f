#!/usr/bin/env python3
"""speed.py PROGRAM FOLDER [--threads 2] [--device cpu] [--precision f32] [--repeat 3]: seconds and peak memory of
`voxgrad_nnunet predict` (PROGRAM) beside nnUNetv2_predict, in turns, on the models and scans that reference.py left in
FOLDER. Needs nnunetv2 from PyPI."""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time


def run(command, threads):
    """Seconds, and MB at the most, of a process."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "nnUNet_raw": "/tmp", "nnUNet_preprocessed": "/tmp", "nnUNet_results": "/tmp"}
    start = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"failed: {' '.join(map(str, command))}")
    return time.perf_counter() - start, usage.ru_maxrss / 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="f32")
    parser.add_argument("--repeat", type=int, default=3)
    o = parser.parse_args()
    theirs = pathlib.Path(sys.executable).parent / "nnUNetv2_predict_from_modelfolder"
    for model in sorted(path.parent for path in o.folder.glob("*/model/plans.json")):
        case, folds = model.parent, [fold.name.removeprefix("fold_") for fold in sorted(model.glob("fold_*"))]
        with tempfile.TemporaryDirectory() as out:
            commands = {
                "voxgrad": [o.program, "predict", "--model", model, "--input", case / "images", "--output", f"{out}/a",
                            "--device", o.device, "--precision", o.precision, "--threads", str(o.threads)],
                "nnU-Net": [theirs, "-i", case / "images", "-o", f"{out}/b", "-m", model, "-f", *folds, "-device", o.device,
                            "-npp", "1", "-nps", "1"]}
            results = {name: [] for name in commands}
            for _ in range(o.repeat):
                for name, command in commands.items():
                    results[name].append(run(command, o.threads))
        for name, times in results.items():
            print(f"{case.name:6} {name}: {min(t for t, _ in times):.2f} s, at most {max(m for _, m in times):.0f} MB (its largest process)")


if __name__ == "__main__":
    main()
