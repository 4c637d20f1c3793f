"""Threads, and memory over many calls."""

import os
import random
import signal
import threading

import torch

import voxgrad
import voxgrad.torch
from support import assert_close, voxgrads


def resident_bytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def random_call(draw, device):
    """One call with random sizes and options, forward and backward. About a fifth of the calls are refused."""
    axes, transposed = draw.randint(1, 3), draw.random() < 0.5
    groups = draw.choice([1, 1, 2])
    options = dict(stride=draw.randint(1, 3), padding=draw.randint(0, 1), dilation=draw.randint(1, 2), groups=groups)
    if transposed:
        options["output_padding"] = draw.randint(0, 1)
    x = torch.randn(draw.randint(0, 2), 2 * draw.randint(1, 2), *(draw.randint(1, 6) for _ in range(axes)),
                    device=device, requires_grad=draw.random() < 0.5)
    c_out, kernel = 2 * draw.randint(1, 2), [draw.randint(1, 3) for _ in range(axes)]
    c_in = x.shape[1]
    shape = (c_in, c_out // groups) if transposed else (c_out, c_in // groups)
    weight = torch.randn(*shape, *kernel, device=device, requires_grad=draw.random() < 0.5)
    try:
        result = voxgrads(f"conv{'_transpose' if transposed else ''}{axes}d")(x, weight, **options)
    except ValueError:
        return 0
    if result.requires_grad:
        result.sum().backward()
    return 1


def test_many_calls_keep_no_memory(device):
    draw = random.Random(0)
    done = sum(random_call(draw, device) for _ in range(3000))  # caches of shapes and plans fill
    before = resident_bytes(), torch.cuda.memory_allocated() if device.type == "cuda" else 0
    done += sum(random_call(draw, device) for _ in range(7000))
    assert 5000 < done < 10000
    # 2 KB per call; 9 KB on CUDA, which loads kernels on first use.
    assert resident_bytes() - before[0] < (16 if device.type == "cpu" else 64) * 2**20
    if device.type == "cuda":
        torch.cuda.synchronize()
        assert torch.cuda.memory_allocated() - before[1] < 2**20
        assert voxgrad.memory()[0] < 64 * 2**20


def test_threads_at_once(device):
    x = torch.randn(2, 4, 8, 8, 8, device=device)
    layers = [voxgrad.torch.Conv3d(4, 4, k, padding=1).to(device) for k in (1, 2, 3)]
    expected = [layer(x).detach() for layer in layers]
    wrong = []

    def work(index):
        for i in range(20):
            layer = layers[(i + index) % 3]
            if not torch.equal(layer(x), expected[(i + index) % 3]):
                wrong.append((index, i))
            torch.autograd.grad(layer(x).sum(), layer.weight)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_results_do_not_depend_on_the_number_of_threads():
    x, w = torch.randn(2, 8, 9, 9, 9), torch.randn(8, 8, 3, 3, 3)
    expected = voxgrads("conv_transpose3d")(x, w, stride=2)
    try:
        voxgrad.set_num_threads(1)
        assert torch.equal(voxgrads("conv_transpose3d")(x, w, stride=2), expected)
    finally:
        voxgrad.set_num_threads(torch.get_num_threads())
    assert_close(expected, torch.nn.functional.conv_transpose3d(x.double(), w.double(), stride=2))


def test_a_forked_process_sets_its_threads():
    voxgrads("conv1d")(torch.randn(64, 8, 512), torch.randn(8, 8, 3))
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # ends a child that waits for threads of its parent
        voxgrad.set_num_threads(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
