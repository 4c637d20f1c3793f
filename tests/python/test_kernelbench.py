"""The files of examples/kernelbench against the originals, made smaller, on the CPU. KERNELBENCH names a checkout."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest
import torch

from support import assert_close

FOLDER = Path(__file__).resolve().parent.parent.parent / "examples" / "kernelbench"
FILES = sorted(FOLDER.glob("level*/*.py"))
CHECKOUT = os.environ.get("KERNELBENCH")


def run(path):
    spec = importlib.util.spec_from_file_location("problem", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_there_is_a_file_for_each_problem():
    assert len(FILES) == 7 + 19
    for path in FILES:
        assert issubclass(run(path).ModelNew, torch.nn.Module)


@pytest.fixture(scope="module")
def evaluate():
    return run(FOLDER / "evaluate.py")


@pytest.mark.skipif(not CHECKOUT, reason="KERNELBENCH names no checkout of KernelBench")
@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_same_parameters_and_results(path):
    original = run(next((Path(CHECKOUT) / "KernelBench" / path.parent.name).glob(f"{path.stem}_*.py")))
    models = []
    for model_class in (original.Model, run(path).ModelNew):
        torch.manual_seed(42)
        models.append(model_class(*original.get_init_inputs()))
    theirs, ours = (model.state_dict() for model in models)
    assert list(ours) == list(theirs) and all(torch.equal(ours[name], theirs[name]) for name in theirs)
    # Smaller batches, depths and heights. The last axis keeps its size, because two layer norms have it.
    original.batch_size = 2
    inputs = [x[:, :, :6 * (1 + i), :6 * (1 + i)].contiguous() for i, x in enumerate(original.get_inputs())]
    for _ in range(2):
        got, expected = (model(*inputs) for model in reversed(models))
        assert_close(got, expected)
        for name in theirs:  # running statistics
            assert_close(ours[name], theirs[name])
        for model in models:
            model.eval()


@pytest.mark.skipif(not CHECKOUT, reason="KERNELBENCH names no checkout of KernelBench")
def test_the_harness_of_the_checkout_is_found(evaluate):
    evaluate.provide_missing_packages()
    harness = evaluate.Harness(Path(CHECKOUT))
    for path in FILES:
        source = harness.source(int(path.parent.name[-1]), int(path.stem))
        context = {}
        harness.eval.load_original_model_and_inputs(source, context)
        assert harness.eval.load_custom_model(path.read_text(), context).__name__ == "ModelNew"
    assert callable(harness.timing.time_execution_with_cuda_event)


def test_no_checkout_is_said(evaluate, tmp_path):
    with pytest.raises(SystemExit, match="no checkout of KernelBench"):
        evaluate.Harness(tmp_path)


def test_table(evaluate, capsys):
    class Options:
        compile = True

    rows = [dict(level=1, problem=61, correct=True, voxgrad=2.0, eager=8.0, compiled=6.0, autotuned=5.0),
            dict(level=1, problem=70, correct=True, voxgrad=2.0, eager=1.0, compiled=1.5, autotuned=1.0),
            dict(level=2, problem=3, correct=False, why="it broke", eager=1.0, compiled=1.0)]
    evaluate.print_table(rows, Options)
    printed = capsys.readouterr().out
    assert "| 1 | 61 | yes | 2.00 | 8.00 | 4.00 | 6.00 | 3.00 | 5.00 | 2.50 |" in printed
    assert "level 1: 2 of 2 correct; 1 faster than eager, geometric mean 1.41; 1 faster than torch.compile" in printed
    assert "level 2: 0 of 1 correct" in printed and "level 2, problem 3: it broke" in printed


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_it_says_so(evaluate, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["evaluate.py", "/nowhere"])
    with pytest.raises(SystemExit, match="needs a GPU"):
        evaluate.main()
