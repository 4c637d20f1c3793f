"""PyTorch's gradcheck and gradgradcheck of every function, and which gradients are computed."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from support import assert_close, voxgrads

OPTIONS = [
    ("conv1d", (2, 4, 7), (6, 2, 3), dict(stride=2, padding=1, dilation=2, groups=2)),
    ("conv2d", (1, 2, 5, 4), (3, 2, 3, 2), dict(stride=(2, 1), padding=(1, 0))),
    ("conv3d", (1, 2, 4, 5, 4), (2, 1, 3, 2, 1), dict(stride=2, padding=1, groups=2)),
    ("conv3d", (2, 3, 3, 4), (2, 2, 2, 1, 3), dict(padding="same")),
    ("conv_transpose1d", (2, 4, 5), (4, 3, 3), dict(stride=3, padding=1, output_padding=2, groups=2)),
    ("conv_transpose2d", (1, 2, 3, 4), (2, 3, 3, 2), dict(stride=2, dilation=(2, 1))),
    ("conv_transpose3d", (1, 2, 2, 3, 2), (2, 2, 3, 2, 1), dict(stride=2, padding=(1, 0, 0), output_padding=1)),
    ("conv_transpose3d", (1, 2, 2, 2, 2), (2, 1, 2, 1, 1), dict(stride=1, dilation=3, output_padding=2)),
]


@pytest.mark.parametrize("name, input, weight, options", OPTIONS)
def test_first_and_second_gradients(name, input, weight, options, device):
    def function(x, w, b):
        return voxgrads(name)(x, w, b, **options)

    channels = weight[1] * options.get("groups", 1) if "transpose" in name else weight[0]
    operands = [torch.randn(shape, dtype=torch.float64, device=device, requires_grad=True)
                for shape in (input, weight, (channels,))]
    assert gradcheck(function, operands)
    assert gradgradcheck(function, operands)


@pytest.mark.parametrize("needed", range(1, 8))
def test_any_operands_may_need_gradients(needed, device):
    shapes = (1, 2, 3, 3), (2, 3, 2, 2), (3,)
    operands = [torch.randn(shape, dtype=torch.float64, device=device, requires_grad=bool(needed >> i & 1))
                for i, shape in enumerate(shapes)]
    assert gradcheck(voxgrads("conv_transpose2d"), operands)
    assert gradgradcheck(voxgrads("conv_transpose2d"), operands)


def test_gradient_penalty(device):
    """A loss of a gradient, backward through both, as Wasserstein GANs need it."""
    def parameter_gradients(conv):
        x = torch.linspace(-1, 1, 2 * 4 * 5 * 6, dtype=torch.float64).view(1, 2, 4, 5, 6).to(device).requires_grad_()
        w = torch.linspace(-1, 1, 3 * 2 * 27, dtype=torch.float64).view(3, 2, 3, 3, 3).to(device).requires_grad_()
        b = torch.ones(3, dtype=torch.float64, device=device, requires_grad=True)
        y = conv(x, w, b, stride=2, padding=1).tanh()
        gx, gw, gb = torch.autograd.grad(y.sum(), (x, w, b), create_graph=True)
        (gx.norm() + gw.norm() + gb.norm()).backward()
        return x.grad, w.grad, b.grad

    for got, expected in zip(parameter_gradients(voxgrads("conv3d")),
                             parameter_gradients(torch.nn.functional.conv3d)):
        assert_close(got, expected, limit=1e-11)


def test_forward_mode_is_pytorchs(device):
    """PyTorch would treat the forward-mode derivative of a custom op as 0."""
    x, w = torch.randn(1, 1, 4, device=device), torch.randn(1, 1, 2, device=device)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(w, torch.ones_like(w))
        tangents = [torch.autograd.forward_ad.unpack_dual(f(x, dual)).tangent
                    for f in (voxgrads("conv1d"), torch.nn.functional.conv1d)]
    assert tangents[1].abs().min() > 0
    assert_close(*tangents)


def test_no_gradient_no_graph(device):
    x, w = torch.randn(1, 1, 4, device=device), torch.randn(1, 1, 2, device=device, requires_grad=True)
    with torch.no_grad():
        assert not voxgrads("conv1d")(x, w).requires_grad
    with torch.inference_mode():
        assert not voxgrads("conv1d")(x, w).requires_grad
    assert not voxgrads("conv1d")(x, w.detach()).requires_grad
    assert voxgrads("conv1d")(x, w).requires_grad


def test_changing_a_saved_operand_in_place_is_an_error(device):
    x, w = torch.randn(1, 1, 4, device=device), torch.randn(1, 1, 2, device=device, requires_grad=True)
    result = voxgrads("conv1d")(x, w)
    x.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def test_forward_mode_through_a_gradient_is_refused():
    leaf, w = torch.randn(1, 2, 6).requires_grad_(), torch.randn(3, 2, 3)
    result = voxgrads("conv1d")(leaf, w)
    with torch.autograd.forward_ad.dual_level():
        scale = torch.autograd.forward_ad.make_dual(torch.tensor(2.0), torch.tensor(1.0))
        with pytest.raises(NotImplementedError, match="forward-mode|jvp"):
            torch.autograd.grad((result * scale).sum(), leaf, create_graph=True)
