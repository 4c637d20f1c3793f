"""Models that others wrote, converted: results, gradients and three steps of training in f64 equal PyTorch's."""

import copy
import pickle

import pytest
import torch

import voxgrad.torch


def monai(name, **options):
    def make():
        networks = pytest.importorskip("monai.networks.nets")
        return getattr(networks, name)(**options)
    return make


def plain_conv_unet():
    architectures = pytest.importorskip("dynamic_network_architectures.architectures.unet")
    return architectures.PlainConvUNet(
        1, 3, (4, 8, 16), torch.nn.Conv3d, 3, (1, 2, 2), (2, 2, 2), 3, (2, 2), conv_bias=True,
        norm_op=torch.nn.InstanceNorm3d, norm_op_kwargs={"eps": 1e-5, "affine": True}, nonlin=torch.nn.LeakyReLU,
        nonlin_kwargs={"inplace": True}, deep_supervision=False)


def residual_unet():
    architectures = pytest.importorskip("dynamic_network_architectures.architectures.unet")
    return architectures.ResidualEncoderUNet(
        1, 3, (4, 8, 16), torch.nn.Conv3d, 3, (1, 2, 2), (1, 2, 2), 3, (1, 1), conv_bias=True,
        norm_op=torch.nn.InstanceNorm3d, norm_op_kwargs={"eps": 1e-5, "affine": True}, nonlin=torch.nn.LeakyReLU,
        nonlin_kwargs={"inplace": True}, deep_supervision=False)


def r3d_18():
    return pytest.importorskip("torchvision.models.video").r3d_18(num_classes=5)


MODELS = {
    "UNet": (monai("UNet", spatial_dims=3, in_channels=1, out_channels=2, channels=(4, 8, 16), strides=(2, 2),
                   num_res_units=2), (2, 1, 16, 16, 16)),
    "BasicUNet": (monai("BasicUNet", spatial_dims=3, in_channels=1, out_channels=2, features=(4, 4, 8, 8, 16, 4)),
                  (1, 1, 32, 32, 32)),
    "SegResNet": (monai("SegResNet", spatial_dims=3, init_filters=8, in_channels=1, out_channels=2), (1, 1, 16, 16, 16)),
    "DynUNet": (monai("DynUNet", spatial_dims=3, in_channels=1, out_channels=2, kernel_size=(3, 3, 3), strides=(1, 2, 2),
                      upsample_kernel_size=(2, 2), filters=(4, 8, 16)), (1, 1, 16, 16, 16)),
    "UNETR": (monai("UNETR", in_channels=1, out_channels=2, img_size=(16, 16, 16), feature_size=4, hidden_size=24,
                    mlp_dim=32, num_heads=2), (1, 1, 16, 16, 16)),
    "PlainConvUNet": (plain_conv_unet, (2, 1, 16, 16, 16)),
    "ResidualEncoderUNet": (residual_unet, (1, 1, 16, 16, 16)),
    "r3d_18": (r3d_18, (2, 3, 8, 24, 24)),
}


def made(name, device):
    make, shape = MODELS[name]
    torch.manual_seed(3)
    return make().double().to(device), torch.randn(shape, dtype=torch.float64, device=device)


def steps(model, x, count=3):
    """Losses, and the parameters at the end."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    losses = []
    for _ in range(count):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.detach().clone() for p in model.state_dict().values()]


@pytest.mark.parametrize("name", MODELS)
def test_trains_like_pytorch(name, device):
    model, x = made(name, device)
    other = copy.deepcopy(model)
    report = voxgrad.torch.convert(other, verbose=False)
    assert len(report) > 5 and list(model.state_dict()) == list(other.state_dict())
    losses, parameters = steps(model, x)
    my_losses, my_parameters = steps(other, x)
    for a, b in zip(losses, my_losses):
        assert abs(a - b) <= 1e-9 * max(1, abs(a))
    for key, a, b in zip(model.state_dict(), parameters, my_parameters):
        assert (a - b).abs().max() <= 1e-9 * max(1, a.abs().max().item()), key
    if name in ("PlainConvUNet", "ResidualEncoderUNet", "r3d_18"):
        assert report.joined


@pytest.mark.parametrize("name", ["UNet", "PlainConvUNet"])
def test_copies_and_undo(name):
    model, x = made(name, "cpu")
    model.eval()
    expected = model(x)
    report = voxgrad.torch.convert(model, verbose=False)
    converted = model(x)
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(copied(x), converted)
        assert [type(m).__name__ for m in copied.modules()] == [type(m).__name__ for m in model.modules()]
    assert "replaced" in str(report)
    assert report.undo() == []
    assert not any(type(m).__module__.startswith("voxgrad") for m in model.modules())
    assert torch.equal(model(x), expected)


def test_hooks_keep_norm_and_activation_apart():
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.ReLU(), torch.nn.Identity()).double()
    x = torch.randn(4, 3, 5, dtype=torch.float64)
    expected = torch.nn.functional.batch_norm(x, None, None, training=True)
    report = voxgrad.torch.convert(model, verbose=False)
    assert report.joined == [""] and report.left == {"2": "voxgrad has no Identity"}
    seen = []
    model[0].register_forward_hook(lambda module, inputs, output: seen.append(output))
    y = model(x)
    assert len(seen) == 1 and torch.allclose(seen[0], expected) and torch.allclose(y, expected.relu())
    assert torch.allclose(model[0](x), expected)  # alone, it is a norm


def test_undo_leaves_what_changed_since():
    model = torch.nn.Sequential(torch.nn.Conv1d(1, 1, 3), torch.nn.ReLU())
    report = voxgrad.torch.convert(model, precision="high", verbose=False)
    torch.nn.utils.parametrizations.spectral_norm(model[0])
    x = torch.randn(1, 1, 5)
    model.eval()
    expected = model(x)
    assert report.undo() == ["0"] and type(model[1]) is torch.nn.ReLU
    assert torch.equal(model(x), expected)


def test_global_hooks_see_both_of_a_pair():
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.ReLU())
    voxgrad.torch.convert(model, verbose=False)
    seen = []
    handle = torch.nn.modules.module.register_module_forward_hook(lambda module, *_: seen.append(type(module).__name__))
    model(torch.randn(4, 3))
    handle.remove()
    assert seen == ["BatchNorm1d", "ReLU", "Sequential"]
