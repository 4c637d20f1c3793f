"""The parts of bench/vs_pytorch.py; see bench/README.md."""
