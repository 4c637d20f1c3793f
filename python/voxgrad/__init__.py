"""voxgrad's convolutions for Python. `import voxgrad.torch` gives them to PyTorch."""

from ._library import empty_cache, has_cuda, memory, set_num_threads, version as __version__

__all__ = ["empty_cache", "has_cuda", "memory", "set_num_threads"]
