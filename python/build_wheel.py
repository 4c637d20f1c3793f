"""The build backend of pyproject.toml (PEP 517): CMake builds the library, zipfile writes the wheel.

A wheel is a zip file with a list of hashes. Ours has Python files and one library that is loaded by ctypes, which fits
every version of Python 3. So no binding tool and no other backend is needed, and pip has nothing to download.

    pip install . --config-settings build-dir=build/cuda-release             uses an existing build folder
    pip install . --config-settings cmake.CMAKE_CUDA_ARCHITECTURES=90a-real  defines a CMake variable
"""

import base64
import hashlib
import os
import re
import subprocess
import sysconfig
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "python" / "voxgrad"
LIBRARY = "libvoxgrad_python.so"


def _cmake(*arguments):
    # pip hides its caller's packages from the programs that it starts. A CMake installed by pip needs them.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    try:
        subprocess.run(["cmake", *map(str, arguments)], cwd=ROOT, env=environment, check=True)
    except FileNotFoundError:
        raise SystemExit("voxgrad: building the package needs CMake 3.25 or newer, a C++ compiler, Eigen and "
                         "nlohmann_json (docs/building.md)") from None


def _build_library(settings):
    """Builds the library and returns its path."""
    folder = ROOT / settings.pop("build-dir", "build/python")
    definitions = [f"-D{name.removeprefix('cmake.')}={value}" for name, value in settings.items()]
    if not (folder / "CMakeCache.txt").exists():
        definitions = ["-DCMAKE_BUILD_TYPE=Release", "-DVOXGRAD_BUILD_TESTS=OFF", "-DVOXGRAD_BUILD_EXAMPLES=OFF",
                       "-DVOXGRAD_BUILD_BENCHMARKS=OFF", "-DVOXGRAD_INSTALL=OFF", *definitions]
    _cmake("-S", ROOT, "-B", folder, *definitions)
    _cmake("--build", folder, "--target", "voxgrad_python", "-j", os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL",
                                                                                 os.cpu_count()))
    return folder / "python" / LIBRARY


def _stripped(library):
    stripped = library.with_name("stripped_" + library.name)
    subprocess.run(["strip", "-o", stripped, library], check=True)
    return stripped.read_bytes()


def _information():
    """The name of the wheel without its end, and the files of its .dist-info folder without RECORD."""
    version = re.search(r"project\(voxgrad VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1]
    tag = "py3-none-" + re.sub("[-.]", "_", sysconfig.get_platform())
    folder = f"voxgrad-{version}.dist-info"
    metadata = (f"Metadata-Version: 2.1\nName: voxgrad\nVersion: {version}\nRequires-Python: >=3.9\n"
                "Summary: voxgrad's fast convolutions and transposed convolutions for PyTorch\nLicense: MIT\n")
    wheel = f"Wheel-Version: 1.0\nGenerator: voxgrad\nRoot-Is-Purelib: false\nTag: {tag}\n"
    entry = "[torch_dynamo_backends]\nvoxgrad = voxgrad.torch.backend:backend\n"  # where torch.compile finds it
    return f"voxgrad-{version}-{tag}", folder, {f"{folder}/METADATA": metadata.encode(),
                                               f"{folder}/WHEEL": wheel.encode(),
                                               f"{folder}/entry_points.txt": entry.encode(),
                                               f"{folder}/LICENSE": (ROOT / "LICENSE").read_bytes()}


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    _, folder, files = _information()
    (Path(metadata_directory) / folder).mkdir()
    for path, content in files.items():
        (Path(metadata_directory) / path).write_bytes(content)
    return folder


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    library = _build_library(dict(config_settings or {}))
    name, folder, information = _information()
    files = {f"voxgrad/{path.relative_to(PACKAGE)}": path.read_bytes() for path in sorted(PACKAGE.rglob("*.py"))}
    files |= {f"voxgrad/{LIBRARY}": _stripped(library), **information}
    record = ""
    with zipfile.ZipFile(Path(wheel_directory) / f"{name}.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, content in files.items():
            wheel.writestr(path, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record += f"{path},sha256={digest},{len(content)}\n"
        wheel.writestr(f"{folder}/RECORD", f"{record}{folder}/RECORD,,\n")
    return f"{name}.whl"
