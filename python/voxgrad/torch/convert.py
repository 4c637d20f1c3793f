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
    something else. `layers` limits the classes that are replaced, and `precision` is given to every new layer.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"convert: model must be a torch.nn.Module, got {type(model).__name__}")
    unknown = [layer for layer in layers if layer not in _REPLACEMENTS]
    if unknown:
        raise ValueError(f"convert: layers must be of {', '.join(c.__name__ for c in _REPLACEMENTS)}, got {unknown}")
    if precision is not None:
        _precision.checked(precision)
    report = Report()
    for name, module in model.named_modules():
        if type(module) not in layers:
            continue
        module.__class__ = report[name] = _REPLACEMENTS[type(module)]
        if precision is not None:
            module.precision = precision
    if verbose:
        print(report)
    return report
