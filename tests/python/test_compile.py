"""torch.compile without graph breaks, torch.export, and the checks that PyTorch has for custom ops (2.4 and newer)."""

import pytest
import torch
import torch.nn as nn

import voxgrad.torch
from support import assert_close

pytestmark = pytest.mark.skipif(voxgrad.torch._version < (2, 4), reason="custom ops need PyTorch 2.4")

# inductor needs a C++ compiler for the CPU and Triton for CUDA; its graphs are those of aot_eager.
BACKENDS = ["aot_eager", "inductor"]


@pytest.fixture(autouse=True)
def reset():
    torch._dynamo.reset()


def network(device):
    return nn.Sequential(voxgrad.torch.Conv3d(2, 4, 3, padding="same", bias=False), nn.BatchNorm3d(4), nn.ReLU(),
                         voxgrad.torch.ConvTranspose3d(4, 2, 4, 2, 1)).to(device)


def run(model, x):
    model.zero_grad()
    y = model(x)
    y.square().sum().backward()
    return [y.detach(), *(p.grad.clone() for p in model.parameters())]


@pytest.mark.parametrize("converted", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_whole_graph_forward_and_backward(backend, converted, device):
    model = network(device)
    if converted:
        assert voxgrad.torch.convert(model, verbose=False).joined == [""]
    x = torch.randn(2, 2, 5, 6, 7, device=device)
    expected = run(model, x)
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    for got, right in zip(run(compiled, x), expected):
        assert_close(got, right)


def test_dynamic_sizes(device):
    model = network(device).eval()
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend="aot_eager")
    for size in (5, 6, 9):
        x = torch.randn(2, 2, size, 6, 7, device=device)
        assert_close(compiled(x), model(x))


def test_autocast(device):
    model = network(device)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    x = torch.randn(2, 2, 4, 4, 4, device=device)
    with torch.autocast(device.type, torch.bfloat16):
        assert compiled(x).dtype == torch.bfloat16
    assert compiled(x).dtype == torch.float32


@pytest.mark.skipif(voxgrad.torch._version < (2, 5), reason="PyTorch 2.4 does not look into layers")
def test_the_precision_of_a_context_is_a_guard():
    seen = []

    def backend(graph, _):
        seen.append([node.args[-1] for node in graph.graph.nodes if "voxgrad" in str(node.target)])
        return graph

    conv = voxgrad.torch.Conv1d(1, 1, 1)
    compiled = torch.compile(conv, fullgraph=True, backend=backend)
    x = torch.ones(1, 1, 4)
    compiled(x)
    with voxgrad.torch.precision("high"):
        compiled(x)
    compiled(x)

    def inside(x):
        with voxgrad.torch.precision("medium"):
            return conv(x)

    if voxgrad.torch._version >= (2, 6):  # older versions cannot enter a context in a graph
        torch.compile(inside, fullgraph=True, backend=backend)(x)
        assert seen.pop() == ["medium"]
    assert seen == [["highest"], ["high"]]


def test_export():
    model = network("cpu").eval()
    x = torch.randn(1, 2, 4, 4, 4)
    assert_close(torch.export.export(model, (x,)).module()(x), model(x))


def test_pytorchs_checks_of_custom_ops(device):
    x = torch.randn(2, 4, 5, 5, device=device, requires_grad=True)
    weight = torch.randn(4, 3, 3, 3, device=device, requires_grad=True)
    bias = torch.randn(6, device=device, requires_grad=True)
    steps = ((2, 2), (1, 1), (1, 1), 2, True)
    ops = torch.ops.voxgrad
    torch.library.opcheck(ops.convolution, (x, weight, bias, (10, 10), *steps, "highest"))
    grad = torch.randn(2, 6, 10, 10, device=device, requires_grad=True)
    for with_bias in (True, False):
        torch.library.opcheck(ops.convolution_weight_grad, (x, grad, (3, 3), *steps, with_bias, "highest"))
