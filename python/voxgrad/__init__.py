"""voxgrad's convolutions for Python. `import voxgrad.torch` gives them to PyTorch."""

from ._library import empty_cache, has_cuda, memory, set_num_threads, version as __version__
from ._tensor import Tensor, from_dlpack

__all__ = ["Tensor", "empty_cache", "from_dlpack", "has_cuda", "memory", "set_num_threads"]
