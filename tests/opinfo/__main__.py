"""PyTorch's samples through voxgrad: `python3 tests/opinfo --library <shim>`; README.md here says what is tested."""

import sys

if __name__ == "__main__":
    from pytorch import find_pytorch
    find_pytorch("opinfo")
    import run
    sys.exit(run.main())
