"""The wheel that the build backend writes: pip's rules for its files, and that it works where it is unpacked."""

import base64
import csv
import hashlib
import importlib.util
import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import voxgrad

ROOT = Path(__file__).resolve().parent.parent.parent
LIBRARY = os.environ.get("VOXGRAD_LIBRARY")


@pytest.fixture
def backend(monkeypatch):
    spec = importlib.util.spec_from_file_location("build_wheel", ROOT / "python" / "build_wheel.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "_build_library", lambda settings: Path(LIBRARY))  # CMake has built it
    return module


@pytest.mark.skipif(not LIBRARY, reason="tests the installed package, which is no build folder")
def test_wheel(backend, tmp_path):
    name = backend.build_wheel(tmp_path)
    assert name.startswith(f"voxgrad-{voxgrad.__version__}-py3-none-linux_")
    with zipfile.ZipFile(tmp_path / name) as wheel:
        names = wheel.namelist()
        folder = backend.prepare_metadata_for_build_wheel(tmp_path)
        for file in (tmp_path / folder).iterdir():
            assert wheel.read(f"{folder}/{file.name}") == file.read_bytes()
        rows = list(csv.reader(io.StringIO(wheel.read(f"{folder}/RECORD").decode())))
        assert [row[0] for row in rows] == names
        for path, digest, size in rows[:-1]:
            content = wheel.read(path)
            assert int(size) == len(content)
            assert digest == "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        wheel.extractall(tmp_path / "site")
    environment = {k: v for k, v in os.environ.items() if k != "VOXGRAD_LIBRARY"}
    result = subprocess.run(
        [sys.executable, "-c", "import torch, voxgrad.torch as v; print(v.__file__); "
                               "print(v.functional.conv1d(torch.ones(1, 1, 3), torch.ones(1, 1, 2)).sum().item()); "
                               "print(v._version < (2, 5) or 'voxgrad' in torch._dynamo.list_backends())"],
        env={**environment, "PYTHONPATH": str(tmp_path / "site")}, capture_output=True, text=True)
    assert result.stdout.splitlines() == [str(tmp_path / "site" / "voxgrad" / "torch" / "__init__.py"), "4.0",
                                          "True"], result
