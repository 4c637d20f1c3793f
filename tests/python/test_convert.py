"""convert() on networks: what it replaces, and that training goes on as before."""

import copy

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import voxgrad.torch


class UNet(nn.Module):
    """A 3-D U-Net of two levels, with every kind of layer that such networks have."""

    def __init__(self, width=4):
        super().__init__()

        def block(c_in, c_out):
            return nn.Sequential(nn.Conv3d(c_in, c_out, 3, padding=1, bias=False), nn.BatchNorm3d(c_out), nn.ReLU())

        self.enter = block(1, width)
        self.down = nn.Conv3d(width, 2 * width, 2, stride=2)
        self.bottom = block(2 * width, 2 * width)
        self.up = nn.ConvTranspose3d(2 * width, width, 2, stride=2)
        self.leave = block(2 * width, width)
        self.head = nn.Conv3d(width, 2, 1)

    def forward(self, x):
        skip = self.enter(x)
        x = self.up(self.bottom(self.down(skip)))
        return self.head(self.leave(torch.cat([skip, x], 1)))


def losses(model, optimizer, steps=20):
    device, dtype = model.head.weight.device, model.head.weight.dtype
    torch.manual_seed(2)
    x = torch.randn(2, 1, 8, 6, 4).to(device, dtype)
    labels = (x[:, 0] > 0).long()
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        yield loss.item()


@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-9), (torch.float32, 1e-3)], ids=["f64", "f32"])
def test_unet_trains_as_with_pytorchs_layers(dtype, tolerance, device):
    theirs = UNet().to(device, dtype)
    ours = copy.deepcopy(theirs)
    optimizers = [torch.optim.Adam(model.parameters(), lr=1e-2) for model in (theirs, ours)]  # before convert()
    report = voxgrad.torch.convert(ours)
    assert list(report) == ["enter.0", "enter.1", "enter.2", "down", "bottom.0", "bottom.1", "bottom.2", "up", "leave.0",
                            "leave.1", "leave.2", "head"]
    assert report.joined == ["enter", "bottom", "leave"]
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        expected = list(losses(theirs, optimizers[0]))
    got = list(losses(ours, optimizers[1]))
    assert got == pytest.approx(expected, rel=tolerance)
    assert expected[-1] < 0.5 * expected[0]
    assert list(ours.state_dict()) == list(theirs.state_dict())


def test_layers_keep_their_identity(capsys):
    model = UNet()
    layer, weight = model.up, model.up.weight
    seen = []
    layer.register_forward_hook(lambda *_: seen.append(1))
    report = voxgrad.torch.convert(model, precision="high")
    assert model.up is layer and type(layer) is voxgrad.torch.ConvTranspose3d and layer.weight is weight
    assert layer.precision == "high"
    model(torch.randn(1, 1, 4, 4, 4))
    assert seen == [1]
    printed = capsys.readouterr().out
    assert printed.startswith("12 layers replaced\n") and "  up: voxgrad.torch.ConvTranspose3d\n" in printed
    assert str(report) + "\n" == printed
    assert not voxgrad.torch.convert(model, verbose=False)
    assert not capsys.readouterr().out


def test_only_the_exact_classes_asked_for():
    class Own(nn.Conv3d):
        pass

    model = nn.Sequential(Own(1, 1, 1), nn.LazyConv3d(1, 1), nn.Conv2d(1, 1, 1), nn.Conv3d(1, 1, 1), nn.Linear(1, 1))
    shared = model[3]
    model.append(shared)
    report = voxgrad.torch.convert(model, layers=[nn.Conv3d])
    assert report == {"3": voxgrad.torch.Conv3d}
    assert [type(m) for m in model] == [Own, nn.LazyConv3d, nn.Conv2d, voxgrad.torch.Conv3d, nn.Linear,
                                        voxgrad.torch.Conv3d]
    single = nn.Conv1d(1, 1, 1)
    assert voxgrad.torch.convert(single) == {"": voxgrad.torch.Conv1d}
    assert type(single) is voxgrad.torch.Conv1d
    with pytest.raises(TypeError, match="got Tensor"):
        voxgrad.torch.convert(torch.ones(1))
    with pytest.raises(ValueError, match="precision"):
        voxgrad.torch.convert(nn.Conv1d(1, 1, 1), precision="low")
    with pytest.raises(ValueError, match="layers must be"):
        voxgrad.torch.convert(nn.Conv1d(1, 1, 1), layers=[nn.Linear])


def test_layers_may_be_one_class_or_any_iterable():
    for layers in (nn.Conv3d, [nn.Conv3d], (layer for layer in [nn.Conv3d])):
        report = voxgrad.torch.convert(UNet(), layers=layers, verbose=False)
        assert len(report) == 5 and set(report.values()) == {voxgrad.torch.Conv3d}
    with pytest.raises(ValueError, match="layers must be of Conv1d, .*, got none"):
        voxgrad.torch.convert(UNet(), layers=[])


def test_a_second_call_sets_the_precision():
    model = UNet()
    voxgrad.torch.convert(model, verbose=False)
    assert not voxgrad.torch.convert(model, precision="high", verbose=False)
    assert model.down.precision == model.up.precision == "high"


def test_a_precision_context_may_be_entered_twice():
    high = voxgrad.torch.precision("high")
    with high:
        with high:
            pass
        assert voxgrad.torch._precision.current() == "high"
    assert voxgrad.torch._precision.current() == "highest"


LAYERS = [(nn.InstanceNorm3d(3, affine=True, track_running_stats=True), (2, 3, 4, 3, 5)), (nn.InstanceNorm2d(3), (3, 4, 5)),
          (nn.BatchNorm1d(3, momentum=None), (4, 3)), (nn.BatchNorm2d(3, track_running_stats=False), (4, 3, 2, 5)),
          (nn.MaxPool3d(2), (3, 4, 5, 6)), (nn.AdaptiveAvgPool2d((None, 2)), (2, 3, 4, 5)), (nn.GroupNorm(3, 6), (2, 6)),
          (nn.Upsample(scale_factor=(1, 2, 3), mode="trilinear"), (1, 2, 3, 4, 5)), (nn.Upsample(size=7), (1, 2, 3)),
          (nn.Softplus(beta=2), (5,)), (nn.PReLU(3), (2, 3, 4)), (nn.GELU("tanh"), (5,)), (nn.LayerNorm(5), (2, 5))]


def test_eps_of_batch_norm():
    for eps, training in ((-1e-5, False), (0.0, True)):
        with pytest.raises(ValueError, match="batch_norm: eps must be positive"):
            voxgrad.torch.BatchNorm1d(3, eps=eps).train(training)(torch.ones(2, 3))


@pytest.mark.parametrize("layer, shape", LAYERS, ids=lambda value: str(value))
def test_layers_in_training_and_evaluation(layer, shape, device):
    theirs = copy.deepcopy(layer).double().to(device)
    ours = copy.deepcopy(theirs)
    assert voxgrad.torch.convert(ours, verbose=False)
    for training in (False, True, True, False):
        x = torch.randn(shape, dtype=torch.float64, device=device)
        assert torch.allclose(ours.train(training)(x), theirs.train(training)(x), rtol=1e-12, atol=1e-12)
    for got, expected in zip(ours.state_dict().values(), theirs.state_dict().values()):
        assert torch.allclose(got, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("layer, shape, ours", [
    (nn.ReLU(), (2, 8, 64, 64, 64), False), (nn.InstanceNorm3d(8), (1, 8, 8, 8, 8), False),
    (nn.InstanceNorm3d(8), (1, 8, 32, 32, 32), True), (nn.GroupNorm(2, 8), (1, 8, 32, 32, 32), False),
    (nn.Conv3d(16, 16, 3), (2, 16, 8, 8, 8), False), (nn.Conv3d(16, 16, 3), (1, 16, 8, 8, 8), True),
    (nn.Conv3d(2, 4, 3), (2, 2, 8, 8, 8), True), (nn.ConvTranspose3d(4, 4, 2), (2, 4, 8, 8, 8), False)])
def test_what_is_left_to_pytorch_on_a_cpu(monkeypatch, layer, shape, ours):
    monkeypatch.setattr(voxgrad.torch.modules, "leave_to_pytorch_on_cpu", True)
    x = torch.randn(shape, requires_grad=True)
    expected = layer(x)
    voxgrad.torch.convert(layer, verbose=False)
    result = layer(x)
    assert (result.grad_fn.name() != expected.grad_fn.name()) == ours
    torch.testing.assert_close(result, expected, atol=1e-4, rtol=1e-4)
