"""The precision of f32 convolutions on CUDA: the argument's, else that of this thread's context, else the process's."""

import threading

PRECISIONS = ("highest", "high", "medium")
_process = "highest"
_thread = threading.local()  # with a class of ours, TorchDynamo of 2.4 fails
_thread.name = None  # of this thread; others have none before they enter a context


def checked(name):
    if not isinstance(name, str) or name not in PRECISIONS:
        raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, got {name!r}")
    return name


def set_precision(name):
    """Sets the precision of the process, for calls without the argument and outside every context."""
    global _process
    _process = checked(name)


class precision:
    """A context in which this thread's convolutions have the precision `name`:

        with voxgrad.torch.precision("high"):
            output = model(input)

    A gradient is computed with the precision of its forward. The argument `precision` of a module or function wins.
    Threads that start inside, and a forward that checkpointing repeats outside, do not have it: give those a
    precision by the module, or by set_precision().
    """

    def __init__(self, name):
        self._name = checked(name)
        self._outer = []  # one for each entry: a context may be entered again inside itself

    def __enter__(self):
        self._outer.append(getattr(_thread, "name", None))
        _thread.name = self._name
        return self

    def __exit__(self, *_):
        _thread.name = self._outer.pop()


def current(argument=None):
    """The precision of a call with this argument."""
    if argument is not None:
        return checked(argument)
    return getattr(_thread, "name", None) or _process
