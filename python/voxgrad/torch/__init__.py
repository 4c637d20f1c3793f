"""voxgrad's layers in PyTorch: modules, functions, and convert(model). docs/pytorch.md explains them."""

import torch as _torch

_version = tuple(int(part) for part in _torch.__version__.split(".")[:2])
if _version != (1, 13) and _version < (2, 4):
    raise ImportError(f"voxgrad.torch: PyTorch {_torch.__version__} is not supported; supported are 1.13, and 2.4 and "
                      "newer")

from . import functional  # noqa: E402
from ._precision import precision, set_precision  # noqa: E402
from .convert import _REPLACEMENTS, convert  # noqa: E402

globals().update({layer.__name__: layer for layer in _REPLACEMENTS.values()})
__all__ = [*(layer.__name__ for layer in _REPLACEMENTS.values()), "convert", "functional", "precision", "set_precision"]


def __getattr__(name):
    if name == "explain":  # later, because torch._dynamo takes as long to load as all of PyTorch
        from .backend import explain
        return explain
    raise AttributeError(f"module 'voxgrad.torch' has no attribute {name!r}")
