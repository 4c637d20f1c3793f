"""convert(model): the layers of an existing model become voxgrad's."""

import torch.nn as nn

from . import _precision, modules

_CONVOLUTIONS = [f"Conv{kind}{axes}d" for kind in ("", "Transpose") for axes in (1, 2, 3)]
_PER_AXES = ("BatchNorm", "InstanceNorm", "MaxPool", "AvgPool", "AdaptiveAvgPool", "AdaptiveMaxPool")
_OTHERS = [f"{name}{axes}d" for name in _PER_AXES for axes in (1, 2, 3)] + [
    "GroupNorm", "LayerNorm", "ReLU", "ReLU6", "Sigmoid", "Tanh", "SiLU", "Mish", "Hardsigmoid", "Hardswish", "LeakyReLU",
    "ELU", "GELU", "Softplus", "PReLU", "Softmax", "Upsample"]
_REPLACEMENTS = {getattr(nn, name): getattr(modules, name) for name in _CONVOLUTIONS + _OTHERS}
_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


class Report(dict):
    """The replaced layers: their names in the model, and their new classes. It prints as a table.

    joined    the names of the Sequentials in which a norm computes the activation behind it
    left      the layers that stay PyTorch's, and why, by name
    """

    def __init__(self):
        super().__init__()
        self.joined, self.left, self._changed = [], {}, []

    def __str__(self):
        lines = [f"{len(self)} {'layer' if len(self) == 1 else 'layers'} replaced"]
        lines += [f"  {name or '(the model itself)'}: voxgrad.torch.{layer.__name__}" for name, layer in self.items()]
        lines += [f"  {name or '(the model itself)'}: its norms compute the activations behind them" for name in self.joined]
        lines += [f"  {name}: left, {why}" for name, why in self.left.items()]
        return "\n".join(lines)

    def undo(self):
        """Gives the layers the classes and precisions of before. A layer whose class was changed again since, by a
        parametrization for example, is left; their names are returned."""
        left = []
        for name, module, before, after, precision in reversed(self._changed):
            if type(module) is not after:
                left.append(name)
                continue
            module.__class__ = before
            if precision is None:
                vars(module).pop("precision", None)
        self._changed.clear()
        self.joined.clear()
        self.left.clear()
        self.clear()
        return left

    def _change(self, name, module, to):
        self._changed.append((name, module, type(module), to, vars(module).get("precision")))
        module.__class__ = to


def convert(model, *, precision=None, layers=tuple(_REPLACEMENTS), verbose=True):
    """Replaces layers of `model` by voxgrad's, in place. Returns a Report, and prints it if `verbose`; report.undo()
    undoes it.

    A layer keeps its identity, parameters, buffers and hooks: only its class changes. So optimisers, references and
    state_dicts made earlier stay valid. Subclasses of PyTorch's layers are left alone, because they may compute
    something else. PyTorch derives one for a layer with a parametrization, so convert it before that. `layers` limits
    the classes that are replaced. Every replaced convolution gets `precision`, and so do those that are voxgrad's already.

    In an nn.Sequential, and in subclasses that have its forward, a norm computes the ReLU or LeakyReLU behind it in the
    same pass, unless one of both has hooks.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"convert: model must be a torch.nn.Module, got {type(model).__name__}")
    layers = (layers,) if isinstance(layers, type) else tuple(layers)
    unknown = [layer for layer in layers if layer not in _REPLACEMENTS]
    if unknown or not layers:
        allowed = ", ".join(layer.__name__ for layer in _REPLACEMENTS)
        raise ValueError(f"convert: layers must be of {allowed}, got {unknown or 'none'}")
    if precision is not None:
        _precision.checked(precision)
    report = Report()
    convolutions = tuple(_REPLACEMENTS[layer] for layer in layers if layer.__name__ in _CONVOLUTIONS)
    for name, module in model.named_modules():
        why = _why_left(module, layers)
        if why:
            report.left[name] = why
        elif type(module) in layers:
            report[name] = _REPLACEMENTS[type(module)]
            report._change(name, module, report[name])
        if type(module) in convolutions and precision is not None:
            module.precision = precision
    _join(model, report)
    if verbose:
        print(report)
    return report


def _why_left(module, layers):
    """Why a layer stays PyTorch's; None for those that are replaced, and for containers."""
    if type(module) in layers:
        if isinstance(module, nn.Upsample) and module.mode not in ("nearest", "linear", "bilinear", "trilinear"):
            return f"its mode is {module.mode}"
        if isinstance(module, nn.Upsample) and module.recompute_scale_factor:
            return "it has recompute_scale_factor"
        if getattr(module, "return_indices", False):
            return "it returns indices"
        if isinstance(module, nn.Softmax) and module.dim is None:
            return "it has no dim"
        return None
    if next(module.children(), None) is not None or isinstance(module, _CONTAINERS) or (
            type(module).__module__.startswith("voxgrad.")):
        return None
    if type(module) in _REPLACEMENTS:
        return "it is not among `layers`"
    if isinstance(module, tuple(_REPLACEMENTS)):
        return f"{type(module).__name__} is a subclass of PyTorch's layer"
    return f"voxgrad has no {type(module).__name__}"


def _join(model, report):
    """Lets Sequentials join norms and the activations behind them."""
    for name, parent in model.named_modules():
        if isinstance(parent, nn.Sequential) and type(parent).forward is nn.Sequential.forward:
            children = list(parent)
            if any(isinstance(norm, modules._Norm) and type(activation) in (modules.ReLU, modules.LeakyReLU)
                   for norm, activation in zip(children, children[1:])):
                report._change(name, parent, modules.joined(type(parent)))
                report.joined.append(name)
