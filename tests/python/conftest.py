"""Fixtures of the tests of python/voxgrad. `device` runs a test on the CPU and, if voxgrad and the machine have it,
on CUDA; the skipped ones say what is missing."""

import pytest
import torch

import voxgrad.torch


def why_no_cuda():
    if not voxgrad.has_cuda():
        return "this build of voxgrad has no CUDA"
    if not torch.cuda.is_available():
        return "PyTorch sees no CUDA device"
    return None


def pytest_configure(config):
    config.addinivalue_line("markers", "cuda: needs a GPU")


def pytest_collection_modifyitems(items):
    why = why_no_cuda()
    for item in items:
        if why and "cuda" in item.keywords:
            item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def device(request):
    return torch.device(request.param)


@pytest.fixture(autouse=True)
def seed(monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(voxgrad.torch.modules, "leave_to_pytorch_on_cpu", False)
