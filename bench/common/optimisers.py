"""PyTorch's optimisers, with the options that the shims have."""

from .pytorch import torch

OPTIMISERS = {"sgd": (torch.optim.SGD, dict(lr=1e-2, momentum=0.99, weight_decay=3e-5, nesterov=True)),
              "adam": (torch.optim.Adam, {}), "adamw": (torch.optim.AdamW, {})}


def optimiser_of(name, parameters):
    """The fastest form that this PyTorch has for the parameters' device."""
    make, options = OPTIMISERS[name]
    parameters = list(parameters)
    for form in ({"fused": True}, {"foreach": True}, {}):
        try:
            return make(parameters, **options, **form)
        except (TypeError, RuntimeError, ValueError):
            pass
    raise RuntimeError(f"no optimiser {name}")
