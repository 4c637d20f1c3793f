"""convert(model): replaces the convolutions of an existing model by voxgrad's."""

import torch.nn as nn

from . import _precision, modules

_REPLACEMENTS = {getattr(nn, name): getattr(modules, name)
                 for name in ("Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d")}


class Report(dict):
    """The replaced layers: their names in the model, and their new classes. It prints as a table."""

    def __str__(self):
        lines = [f"{len(self)} {'layer' if len(self) == 1 else 'layers'} replaced"]
        lines += [f"  {name or '(the model itself)'}: voxgrad.torch.{layer.__name__}" for name, layer in self.items()]
        return "\n".join(lines)


def convert(model, *, precision=None, layers=tuple(_REPLACEMENTS), verbose=True):
    """Replaces the convolutions of `model` by voxgrad's, in place. Returns a Report, and prints it if `verbose`.

    A layer keeps its identity, parameters, buffers and hooks: only its class changes. So optimisers, references and
    state_dicts made earlier stay valid. Subclasses of PyTorch's layers are left alone, because they may compute
    something else. PyTorch derives one for a layer with a parametrization, so convert it before that. `layers` limits
    the classes that are replaced. Every replaced layer gets `precision`, and so do those that are voxgrad's already.
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
    chosen = tuple(_REPLACEMENTS[layer] for layer in layers)
    for name, module in model.named_modules():
        if type(module) in layers:
            module.__class__ = report[name] = _REPLACEMENTS[type(module)]
        if type(module) in chosen and precision is not None:
            module.precision = precision
    if verbose:
        print(report)
    return report
