"""The layers of voxgrad.torch as drop-in replacements of PyTorch's."""

import copy
import io
import pickle

import pytest
import torch
import torch.nn as nn

import voxgrad.torch
from support import assert_close

NAMES = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]


def pair(name, *args, device="cpu", **kwargs):
    """PyTorch's layer and voxgrad's, made from the same seed."""
    layers = []
    for package in (nn, voxgrad.torch):
        torch.manual_seed(1)
        layers.append(getattr(package, name)(*args, **kwargs).to(device, torch.float64))
    return layers


def random_input(name, device="cpu", batch=(2,)):
    return torch.randn(*batch, 4, *(5, 6, 7)[:int(name[-2])], device=device, dtype=torch.float64)


@pytest.mark.parametrize("name", NAMES)
def test_same_parameters_state_and_results(name, device):
    theirs, ours = pair(name, 4, 6, 3, stride=2, padding=1, dilation=2, groups=2, device=device)
    assert isinstance(ours, type(theirs))
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for a, b in zip(theirs.parameters(), ours.parameters()):
        assert torch.equal(a, b)
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    for batch in ((2,), ()):
        x = random_input(name, device, batch)
        results = []
        for layer in (theirs, ours):
            result = layer(x)
            layer.zero_grad()
            result.square().sum().backward()
            results.append([result, *(p.grad for p in layer.parameters())])
        for expected, got in zip(*results):
            assert_close(got, expected)


@pytest.mark.parametrize("name", ["Conv1d", "Conv2d", "Conv3d"])
@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
def test_padding_modes(name, mode, device):
    theirs, ours = pair(name, 4, 2, 3, padding=2, padding_mode=mode, bias=False, device=device)
    x = random_input(name, device)
    assert_close(ours(x), theirs(x))
    theirs, ours = pair(name, 4, 2, 4, padding="same", padding_mode=mode, device=device)
    assert_close(ours(x), theirs(x))


@pytest.mark.parametrize("name", ["ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"])
def test_output_size(name, device):
    theirs, ours = pair(name, 4, 2, 3, stride=2, padding=1, device=device)
    x = random_input(name, device)
    smallest = theirs(x).shape[2:]
    for size in (smallest, [n + 1 for n in smallest], [2, 2, *(n + 1 for n in smallest)]):
        assert_close(ours(x, output_size=size), theirs(x, output_size=size))
    with pytest.raises(ValueError, match="output size"):
        ours(x, output_size=[n + 2 for n in smallest])
    with pytest.raises(ValueError, match="zeros"):
        getattr(voxgrad.torch, name)(4, 2, 3, padding_mode="reflect")


@pytest.mark.parametrize("name", NAMES)
def test_pickle_deepcopy_and_files(name):
    layer = getattr(voxgrad.torch, name)(4, 2, 3, precision="high").double()
    x = random_input(name)
    buffer = io.BytesIO()
    torch.save(layer.state_dict(), buffer)
    buffer.seek(0)
    loaded = getattr(voxgrad.torch, name)(4, 2, 3).double()
    loaded.load_state_dict(torch.load(buffer))
    copies = [copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), loaded]
    for other in copies:
        assert type(other) is type(layer) and torch.equal(other(x), layer(x))
        assert other.weight.data_ptr() != layer.weight.data_ptr()
    assert [other.precision for other in copies] == ["high", "high", None]
    assert "precision=high" in repr(layer) and "precision" not in repr(loaded)


def test_arguments_of_the_constructors():
    layer = voxgrad.torch.ConvTranspose3d(4, 6, (1, 2, 3), (2, 2, 1), 1, (1, 1, 0), 2, False, 2, device="cpu",
                                          dtype=torch.bfloat16)
    assert layer.weight.shape == (4, 3, 1, 2, 3) and layer.weight.dtype == torch.bfloat16
    assert layer.bias is None and layer.dilation == (2, 2, 2) and layer.output_padding == (1, 1, 0)


def test_hooks_and_parametrizations():
    layer = nn.utils.parametrizations.spectral_norm(voxgrad.torch.Conv2d(4, 2, 3).double())
    torch.manual_seed(0)
    reference = nn.utils.parametrizations.spectral_norm(nn.Conv2d(4, 2, 3).double())
    reference.load_state_dict(layer.state_dict())
    layer.eval(), reference.eval()
    x = random_input("Conv2d")
    seen = []
    layer.register_forward_hook(lambda module, args, output: seen.append(output.shape))
    assert_close(layer(x), reference(x))
    assert seen == [reference(x).shape]


@pytest.mark.cuda
def test_a_layer_moves_between_devices():
    theirs, layer = pair("ConvTranspose3d", 4, 2, 3)
    x = random_input("ConvTranspose3d")
    expected = theirs(x)
    for device in ("cpu", "cuda", "cpu", "cuda"):
        layer.to(device)
        result = layer(x.to(device))
        assert result.device.type == device
        assert_close(result, expected)
        result.sum().backward()
        layer.zero_grad(set_to_none=True)
    with pytest.raises(RuntimeError, match="conv_transpose3d: .*cpu.*cuda"):
        layer(x)
