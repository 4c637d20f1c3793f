#!/usr/bin/env python3
"""reference.py FOLDER [MODEL...]: trains small models with nnU-Net itself and writes what nnU-Net predicts, stage by stage.

For each model below, FOLDER/NAME gets `images`, `masks` (what nnUNetv2_predict writes from them) and `model`: a model
folder with the converted weights and record.safetensors, the arrays between the stages, with windows added up in f32.
A model that is there is not trained again.
FOLDER/*/model without *.pth is what tests/data/nnunet has. Needs nnunetv2 from PyPI.
"""
import argparse
import json
import os
import pathlib
import shutil
import sys

FOLDER = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else sys.exit(__doc__)
for variable in ("raw", "preprocessed", "results"):
    os.environ[f"nnUNet_{variable}"] = str(FOLDER / "work" / variable)
os.environ["nnUNet_def_n_proc"] = "1"

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples/06_nnunet"))
import convert
import numpy as np
import SimpleITK as sitk
import torch
from nnunetv2.experiment_planning.plan_and_preprocess_api import extract_fingerprints, plan_experiments, preprocess
from nnunetv2.inference import predict_from_raw_data
from nnunetv2.inference.export_prediction import convert_predicted_logits_to_segmentation_with_correct_shape
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

MODELS = {
    # name: id, configuration, spacing (z, y, x), size, channels, labels, planner, folds
    "iso": dict(id=101, configuration="3d_fullres", spacing=(1.0, 1.0, 1.0), size=(34, 40, 37),
                channels={"0": "CT"}, labels={"background": 0, "ball": 1, "box": 2}, planner="ExperimentPlanner", folds=2),
    "aniso": dict(id=102, configuration="3d_fullres", spacing=(3.3, 1.0, 1.0), size=(14, 44, 40),
                  channels={"0": "T1", "1": "noNorm"}, labels={"background": 0, "whole": [1, 2], "core": 2},
                  planner="nnUNetPlannerResEncM", folds=1),
    "flat": dict(id=103, configuration="2d", spacing=(2.0, 1.0, 1.0), size=(9, 44, 48),
                 channels={"0": "rescale_to_0_1"}, labels={"background": 0, "ball": 1, "box": 2},
                 planner="ExperimentPlanner", folds=1),
}
CASES = 7  # the last one is predicted, at another spacing


def volume(rng, model, case):
    """An image of a ball and a box on a smooth texture inside a head of zeros, and its labels."""
    scale = np.array([1.0, 1.0, 1.0]) if case < CASES - 1 else np.array([1.0, 0.8, 1.13])
    spacing = np.array(model["spacing"]) * scale
    size = np.maximum((np.array(model["size"]) / scale).astype(int) + rng.integers(0, 4, 3), 4)
    place = np.stack(np.meshgrid(*[np.arange(n) * s for n, s in zip(size, spacing)], indexing="ij"), -1)
    extent = size * spacing
    head = (((place - extent / 2) / (extent * 0.47)) ** 2).sum(-1) < 1
    ball = ((place - extent * rng.uniform(0.35, 0.5, 3)) ** 2).sum(-1) < (extent.min() * 0.22) ** 2
    box = (np.abs(place - extent * rng.uniform(0.5, 0.65, 3)) < extent * 0.12).all(-1)
    labels = np.where(box, 2, np.where(ball, 1, 0)) * head
    images = []
    for channel in range(len(model["channels"])):
        texture = np.sin(place @ rng.uniform(0.1, 0.4, 3)) * 20
        image = 100 + texture + (60 - 30 * channel) * (labels == 1) - 50 * (labels == 2) + rng.normal(0, 8, size)
        images.append((image * head).astype(np.float32))
    return images, labels.astype(np.uint8), spacing


def write_image(array, spacing, file):
    image = sitk.GetImageFromArray(array)
    image.SetSpacing([float(s) for s in spacing[::-1]])
    image.SetOrigin((-10.0, 4.5, 7.0))
    image.SetDirection((0.0, 1.0, 0.0, -1.0, 0.0, 0.0, 0.0, 0.0, 1.0))
    sitk.WriteImage(image, str(file))


def make_dataset(name, model):
    rng = np.random.default_rng(model["id"])
    dataset = f"Dataset{model['id']}_{name}"
    raw = pathlib.Path(os.environ["nnUNet_raw"]) / dataset
    images = FOLDER / name / "images"
    for folder in (raw / "imagesTr", raw / "labelsTr", images):
        folder.mkdir(parents=True, exist_ok=True)
    for case in range(CASES):
        channels, labels, spacing = volume(rng, model, case)
        target = images if case == CASES - 1 else raw / "imagesTr"
        for c, channel in enumerate(channels):
            write_image(channel, spacing, target / f"case{case}_{c:04d}.nii.gz")
        if case < CASES - 1:
            write_image(labels, spacing, raw / "labelsTr" / f"case{case}.nii.gz")
    description = {"channel_names": model["channels"], "labels": model["labels"], "numTraining": CASES - 1,
                   "file_ending": ".nii.gz"}
    if any(isinstance(label, list) for label in model["labels"].values()):
        description["regions_class_order"] = [1, 2]
    (raw / "dataset.json").write_text(json.dumps(description))
    return dataset


def shrink(plans_file, configuration):
    """Few channels, a small patch: the file is to be small, and the windows are to overlap."""
    plans = json.loads(plans_file.read_text())
    settings = plans["configurations"][configuration]
    arch = settings["architecture"]["arch_kwargs"]
    stages = min(3, arch["n_stages"])
    arch["n_stages"] = stages
    arch["features_per_stage"] = [4, 8, 12][:stages]
    for key in ("kernel_sizes", "strides", "n_conv_per_stage", "n_blocks_per_stage"):
        if key in arch:
            arch[key] = arch[key][:stages]
    if "n_blocks_per_stage" in arch:
        arch["n_blocks_per_stage"] = [1, 2, 2][:stages]
    arch["n_conv_per_stage_decoder"] = arch["n_conv_per_stage_decoder"][:stages - 1]
    strides = np.prod(arch["strides"], axis=0)
    settings["patch_size"] = [int(s) * max(1, round(p * 0.6 / s)) for p, s in zip(settings["patch_size"], strides)]
    settings["batch_size"] = 2
    plans_file.write_text(json.dumps(plans))
    return plans


def train(dataset, model, plans):
    preprocessed = pathlib.Path(os.environ["nnUNet_preprocessed"]) / dataset
    description = json.loads((preprocessed / "dataset.json").read_text())
    for fold in range(model["folds"]):
        torch.manual_seed(fold)
        np.random.seed(fold)
        trainer = nnUNetTrainer({**plans, "continue_training": False}, model["configuration"], fold, description,
                                device=torch.device("cpu"))
        trainer.num_epochs, trainer.num_iterations_per_epoch, trainer.num_val_iterations_per_epoch = 3, 40, 1
        trainer.disable_checkpointing = False
        trainer.run_training()
    return pathlib.Path(trainer.output_folder_base)


def predict(name, model):
    target = FOLDER / name / "masks"
    target.mkdir(exist_ok=True)
    folds = tuple(range(model["folds"]))

    def predictor():
        p = predict_from_raw_data.nnUNetPredictor(device=torch.device("cpu"), allow_tqdm=False)
        p.initialize_from_trained_model_folder(str(FOLDER / name / "model"), folds)
        return p

    predictor().predict_from_files_sequential(str(FOLDER / name / "images"), str(target), overwrite=True)
    torch.half = torch.float32  # the dtype of nnU-Net's sums over windows; weights stay rounded to f16
    p = predictor()
    preprocessor = p.configuration_manager.preprocessor_class(verbose=False)
    files = sorted(str(f) for f in (FOLDER / name / "images").glob("*.nii.gz"))
    data, _, properties = preprocessor.run_case(files, None, p.plans_manager, p.configuration_manager, p.dataset_json)
    logits = p.predict_logits_from_preprocessed_data(torch.from_numpy(data)).numpy()
    mask = convert_predicted_logits_to_segmentation_with_correct_shape(
        logits, p.plans_manager, p.configuration_manager, p.label_manager, properties)
    scan, _ = p.plans_manager.image_reader_writer_class().read_images(files)
    record = {"image": scan, "input": data, "logits": logits, "mask": mask.astype(np.uint8),
              "box": np.array(properties["bbox_used_for_cropping"]), "spacing": np.array(properties["spacing"])}
    convert.write_safetensors(FOLDER / name / "model" / "record.safetensors",
                              {key: torch.from_numpy(np.ascontiguousarray(array)) for key, array in record.items()}, {})


def make_model(name, model):
    os.environ["nnUNet_n_proc_DA"] = "1"
    dataset = make_dataset(name, model)
    extract_fingerprints([model["id"]], num_processes=1)
    plans_name = plan_experiments([model["id"]], model["planner"])
    preprocessed = pathlib.Path(os.environ["nnUNet_preprocessed"]) / dataset
    plans = shrink(preprocessed / f"{plans_name}.json", model["configuration"])
    preprocess([model["id"]], plans_name, [model["configuration"]], [1])
    os.environ["nnUNet_n_proc_DA"] = "0"  # train in this process alone; planning needs 1
    trained = train(dataset, model, plans)
    target = FOLDER / name / "model"
    shutil.copytree(trained, target, ignore=shutil.ignore_patterns(
        "validation", "*.png", "*.txt", "debug.json", "dataset_fingerprint.json", "checkpoint_best*", "checkpoint_latest*"))
    for checkpoint in sorted(target.glob("fold_*/checkpoint_final.pth")):
        convert.convert(checkpoint)


def main():
    for name in sys.argv[2:] or MODELS:
        if not (FOLDER / name / "model").exists():
            make_model(name, MODELS[name])
        predict(name, MODELS[name])


if __name__ == "__main__":
    main()
