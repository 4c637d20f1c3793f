"""Finds a Python that has PyTorch."""

import importlib.util
import os
import sys

SKIPPED = 77  # what CTest knows as "skipped"


def find_pytorch(name):
    """Goes on in the system's Python if this one has no PyTorch: Debian's package belongs to that one alone."""
    if importlib.util.find_spec("torch"):
        return
    system = "/usr/bin/python3"
    if os.path.exists(system) and sys.executable != system:
        os.execv(system, [system, *sys.argv])
    print(f"{name}: SKIPPED, there is no Python with PyTorch here (Debian: python3-torch; ./run {name} installs it)")
    sys.exit(SKIPPED)
