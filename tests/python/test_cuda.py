"""What only a GPU shows: streams, graphs, memory, several GPUs."""

import pytest
import torch

import voxgrad
import voxgrad.torch
from support import assert_close, voxgrads

pytestmark = pytest.mark.cuda


def operands(device="cuda", size=32):
    x = torch.randn(2, 8, size, size, size, device=device)
    return x, torch.randn(8, 8, 3, 3, 3, device=device)


def delay():
    torch.cuda._sleep(50_000_000)  # cycles: some 30 ms


@pytest.mark.parametrize("producer_is_default", [True, False])
def test_producer_and_consumer_in_different_streams(producer_is_default):
    x, weight = operands()
    expected = voxgrads("conv3d")(x + 1, weight)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    first, second = (torch.cuda.default_stream(), side) if producer_is_default else (side, torch.cuda.default_stream())
    with torch.cuda.stream(first):
        delay()
        late = x + 1  # not ready for any work that does not wait for this stream
        result = voxgrads("conv3d")(late, weight)
    second.wait_stream(first)
    with torch.cuda.stream(second):
        copied = result.clone()
    torch.cuda.synchronize()
    assert torch.equal(copied, expected)


def test_work_runs_in_the_current_stream():
    x, weight = operands()
    voxgrads("conv3d")(x, weight)
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        delay()
        voxgrads("conv3d")(x, weight)
    assert not side.query()
    assert torch.cuda.default_stream().query()
    side.synchronize()


def test_backward_in_a_side_stream():
    x, weight = operands()
    weight.requires_grad_()
    expected = torch.autograd.grad(voxgrads("conv3d")(x, weight).square().sum(), weight)[0]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        delay()
        got = torch.autograd.grad(voxgrads("conv3d")(x, weight).square().sum(), weight)[0]
    torch.cuda.current_stream().wait_stream(side)
    assert torch.equal(got, expected)


@pytest.mark.parametrize("precision", ["highest", "high"])
@pytest.mark.parametrize("name", ["conv3d", "conv_transpose3d"])
def test_cuda_graph_of_forward_and_backward(name, precision):
    x, weight = operands()
    weight.requires_grad_()

    def step():
        return torch.autograd.grad(voxgrads(name)(x, weight, stride=2, precision=precision).square().sum(), weight)[0]

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    for seed in range(3):
        torch.manual_seed(seed)
        x.copy_(torch.randn_like(x))
        graph.replay()
        torch.cuda.synchronize()
        assert_close(captured, step())


def test_make_graphed_callables():
    layer = voxgrad.torch.ConvTranspose3d(8, 4, 3, stride=2).cuda()
    x = operands()[0].requires_grad_()
    expected = layer(x)
    expected_grad = torch.autograd.grad(expected.sum(), layer.weight)[0]
    expected = expected.detach()  # a graph of the default stream must not be alive during the capture
    graphed = torch.cuda.make_graphed_callables(layer, (x,))
    got = graphed(x)
    assert_close(got, expected)
    assert_close(torch.autograd.grad(got.sum(), layer.weight)[0], expected_grad)


def test_reduce_overhead():
    if voxgrad.torch._version < (2, 4):
        pytest.skip("custom ops need PyTorch 2.4")
    layer = voxgrad.torch.ConvTranspose3d(8, 4, 3, stride=2).cuda()
    compiled = torch.compile(layer, mode="reduce-overhead", fullgraph=True)
    x = operands()[0]
    for _ in range(4):
        assert_close(compiled(x).clone(), layer(x))


def take_all_memory():
    """Blocks of PyTorch that leave less than 12 MiB free."""
    blocks = []
    for size in (2**30, 2**27, 2**24, 12 * 2**20):
        try:
            while True:
                blocks.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        except torch.cuda.OutOfMemoryError:
            pass
    return blocks


def test_lack_of_working_memory(monkeypatch):
    """voxgrad takes working memory, here for 28 MB of packed weights, that PyTorch holds without using it."""
    x, weight = torch.randn(1, 512, 4, 4, 4, device="cuda"), torch.randn(512, 512, 3, 3, 3, device="cuda")
    expected = voxgrads("conv3d")(x, weight)
    torch.cuda.synchronize()
    voxgrad.empty_cache()
    cached = torch.empty(256 * 2**20, dtype=torch.uint8, device="cuda")
    blocks = take_all_memory()
    del cached
    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "empty_cache", lambda: None)
        with pytest.raises(torch.cuda.OutOfMemoryError, match="conv3d: .*cannot allocate"):
            voxgrads("conv3d")(x, weight)
    assert torch.equal(voxgrads("conv3d")(x, weight), expected)
    del blocks


def test_results_too_large_are_pytorchs_error():
    weight = torch.randn(1, 512, 1, 1, 1, device="cuda")
    x = torch.randn(1, 1, 1, 1, 1, device="cuda").expand(1, 1, 1024, 1024, 1024)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        voxgrads("conv_transpose3d")(x, weight)
    x, weight = operands()
    voxgrads("conv3d")(x, weight)  # and nothing is broken


def test_operands_on_different_devices_are_refused():
    x, weight = operands()
    with pytest.raises(RuntimeError, match="conv3d: .*cuda:0.*cpu"):
        voxgrads("conv3d")(x, weight.cpu())


def test_empty_cache_returns_memory():
    x, weight = operands(size=64)
    voxgrads("conv3d")(x, weight, precision="highest")
    torch.cuda.synchronize()
    voxgrad.empty_cache()
    in_use, reserved = voxgrad.memory()
    assert in_use == 0 and reserved <= 32 * 2**20


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_the_other_gpu():
    x, weight = operands()
    expected = voxgrads("conv3d")(x, weight)
    there = voxgrads("conv3d")(x.to("cuda:1"), weight.to("cuda:1"))
    assert there.device == torch.device("cuda:1") and torch.cuda.current_device() == 0
    assert torch.equal(there.to("cuda:0"), expected)
    with torch.cuda.device(1):  # the current device is not that of the operands
        assert torch.equal(voxgrads("conv3d")(x, weight), expected)
        assert torch.cuda.current_device() == 1
    with pytest.raises(RuntimeError, match="cuda:0.*cuda:1"):
        voxgrads("conv3d")(x, weight.to("cuda:1"))
