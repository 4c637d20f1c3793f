"""PyTorch's ops with the names and arguments that voxgrad's have in C++ (program.py)."""

from .pytorch import torch

f = torch.nn.functional


def _activated(y, slope):
    return y if slope == 1 else f.relu(y) if slope == 0 else f.leaky_relu(y, slope)


class _Ops:
    """What is not below has the same arguments in PyTorch."""

    def __getattr__(self, name):
        return getattr(torch, name) if hasattr(torch, name) else getattr(f, name)

    # A norm's last argument is the slope of its activation below 0, or 1 for none.
    @staticmethod
    def batch_norm(x, mean, var, weight, bias, training=False, momentum=0.1, eps=1e-5, slope=1):
        return _activated(f.batch_norm(x, mean, var, weight, bias, training, momentum, eps), slope)

    @staticmethod
    def instance_norm(x, mean, var, weight, bias, use_input_stats=True, momentum=0.1, eps=1e-5, slope=1):
        return _activated(f.instance_norm(x, mean, var, weight, bias, use_input_stats, momentum, eps), slope)

    @staticmethod
    def group_norm(x, groups, weight, bias, eps, slope=1):
        return _activated(f.group_norm(x, groups, weight, bias, eps), slope)

    @staticmethod
    def layer_norm(x, shape, weight, bias, eps, slope=1):
        return _activated(f.layer_norm(x, shape, weight, bias, eps), slope)

    @staticmethod
    def sum(x, dims, keepdim):
        return torch.sum(x, dims, keepdim) if dims else torch.sum(x)

    @staticmethod
    def max(x, dims, keepdim):
        return torch.amax(x, dims, keepdim)

    @staticmethod
    def argmax(x, dims, keepdim):
        return torch.argmax(x, dims[0], keepdim)

    @staticmethod
    def norm(x, p, dims, keepdim):
        return torch.linalg.vector_norm(x, p, dims, keepdim)

    @staticmethod
    def var_mean(x, dims, correction, keepdim):
        return torch.var_mean(x, dims, correction == 1, keepdim)

    @staticmethod
    def mse_loss(x, target, reduction):
        return f.mse_loss(x, target, reduction=reduction)

    @staticmethod
    def l1_loss(x, target, reduction):
        return f.l1_loss(x, target, reduction=reduction)

    @staticmethod
    def interpolate(x, size, scale_factor, mode):
        return f.interpolate(x, size, scale_factor, mode)

    @staticmethod
    def grid_sample(x, grid, mode, padding, align_corners):
        return f.grid_sample(x, grid, "nearest" if mode == "nearest" else "bilinear", padding, align_corners)

    @staticmethod
    def pad(x, padding, value):
        return f.pad(x, padding, value=value)

    @staticmethod
    def slice(x, dim, start, end, step):
        return x[(..., slice(start, end, step)) + (slice(None),) * (-1 - dim)]

    @staticmethod
    def contiguous(x):
        return x.contiguous()

    @staticmethod
    def to(x, dtype):
        return x.to({"f32": torch.float32}[dtype])


PYTORCH = _Ops()
