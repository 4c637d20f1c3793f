"""The tests of the Python package: `python3 tests/python --library <libvoxgrad_python.so> [arguments of pytest]`.

Without --library they test the installed package.
"""

import importlib.util
import os
import sys
from pathlib import Path

SKIPPED = 77  # what CTest knows as "skipped"
HERE = Path(__file__).resolve().parent


def find_packages():
    """Goes on in the system's Python if this one lacks a package: Debian's packages belong to that one alone."""
    missing = [name for name in ("torch", "pytest") if not importlib.util.find_spec(name)]
    if not missing:
        return
    system = "/usr/bin/python3"
    if os.path.exists(system) and sys.executable != system:
        os.execv(system, [system, *sys.argv])
    print(f"python: SKIPPED, there is no Python with {' and '.join(missing)} here (Debian: python3-torch, "
          "python3-pytest)")
    sys.exit(SKIPPED)


if __name__ == "__main__":
    find_packages()
    arguments = sys.argv[1:]
    if arguments[:1] == ["--library"]:
        os.environ["VOXGRAD_LIBRARY"] = str(Path(arguments[1]).resolve())
        package = str(HERE.parent.parent / "python")
        os.environ["PYTHONPATH"] = os.pathsep.join([package, os.environ.get("PYTHONPATH", "")])
        sys.path.insert(0, package)
        arguments = arguments[2:]
    import pytest
    if not any(HERE in Path(argument.split("::")[0]).resolve().parents for argument in arguments):
        arguments.append(str(HERE))
    sys.exit(pytest.main(["-p", "no:cacheprovider", "-q", *arguments]))
