"""PyTorch. Without it, the benchmark ends with the exit status that CTest takes for a skipped test."""

import sys

try:
    import torch  # noqa: F401
except ModuleNotFoundError:
    print("bench: this Python has no PyTorch", file=sys.stderr)
    sys.exit(77)
