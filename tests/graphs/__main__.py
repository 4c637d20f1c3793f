"""Random graphs through voxgrad and PyTorch: `python3 tests/graphs --library <shim>`; README.md here says what is tested."""

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
sys.path[1:1] = [str(TESTS / "opinfo"), str(TESTS.parent / "capi")]

if __name__ == "__main__":
    from pytorch import find_pytorch
    find_pytorch("graphs")
    import run
    sys.exit(run.main())
