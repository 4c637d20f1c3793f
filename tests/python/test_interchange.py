"""voxgrad.Tensor and its exchange of memory with NumPy and PyTorch: values, addresses, lifetimes, refusals."""

import copy
import gc
import os
import pickle
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest
import torch

import voxgrad

OF_NUMPY = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "i64": np.int64, "u8": np.uint8, "bool": np.bool_}
OF_TORCH = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16,
            "i64": torch.int64, "u8": torch.uint8, "bool": torch.bool}


def numpy_layouts(values):
    yield "dense", values
    yield "fortran", np.asfortranarray(values)
    yield "permuted", values.transpose(2, 0, 1)
    yield "every second", values[::2, :, ::3]
    yield "at an offset", values[1:, 1:]
    yield "expanded", np.broadcast_to(values[:1], values.shape)
    yield "one element", values[0, 0, 0:1]
    yield "without elements", values[:0]
    yield "scalar", values[1, 2, 3:4].reshape(())


def torch_layouts(values):
    yield "dense", values
    yield "permuted", values.permute(2, 0, 1)
    yield "every second", values[::2, :, ::3]
    yield "at an offset", values[1:, 1:]
    yield "expanded", values[:1].expand_as(values)
    yield "without elements", values[:0]
    yield "scalar", values[1, 2, 3]


def values_of(dtype, shape=(3, 4, 5)):
    return (np.arange(np.prod(shape)) % 7).reshape(shape).astype(dtype)


def torch_takes(dtype):
    """Whether this PyTorch exchanges the dtype by DLPack: 1.13 has no bool."""
    try:
        torch.utils.dlpack.to_dlpack(torch.ones(1, dtype=OF_TORCH[dtype]))
        return True
    except (RuntimeError, BufferError):
        return False


@pytest.mark.parametrize("dtype", OF_NUMPY)
def test_numpy_both_ways(dtype):
    for layout, array in numpy_layouts(values_of(OF_NUMPY[dtype])):
        tensor = voxgrad.Tensor(array)
        assert (tensor.shape, tensor.dtype, tensor.device) == (array.shape, dtype, "cpu"), layout
        assert tensor.read_only == (not array.flags.writeable), layout
        back = np.asarray(tensor)
        assert back.dtype == array.dtype and back.flags.writeable == array.flags.writeable
        np.testing.assert_array_equal(back, array, layout)
        np.testing.assert_array_equal(np.asarray(tensor.clone()), array, layout)
        if array.size:
            assert back.ctypes.data == array.ctypes.data, layout
            assert all(a == b for a, b, n in zip(back.strides, array.strides, array.shape) if n > 1), layout


@pytest.mark.parametrize("dtype", [dtype for dtype in OF_NUMPY if dtype != "bool"])
def test_numpy_by_dlpack(dtype):
    for layout, array in numpy_layouts(values_of(OF_NUMPY[dtype])):
        if not array.flags.writeable:
            continue
        tensor = voxgrad.from_dlpack(array)
        assert tensor.dtype == dtype
        back = np.from_dlpack(tensor)
        np.testing.assert_array_equal(back, array, layout)
        assert not array.size or back.ctypes.data == array.ctypes.data


@pytest.mark.parametrize("dtype", OF_TORCH)
def test_pytorch_both_ways(dtype, device):
    if device.type == "cuda" and not voxgrad.has_cuda():
        pytest.skip("this build of voxgrad has no CUDA")
    if not torch_takes(dtype):
        pytest.skip("this PyTorch does not lend this dtype")
    values = (torch.arange(60) % 7).view(3, 4, 5).to(device, OF_TORCH[dtype])
    for layout, there in torch_layouts(values):
        capsule = torch.utils.dlpack.to_dlpack
        for lend in (voxgrad.from_dlpack, voxgrad.Tensor, lambda t: voxgrad.from_dlpack(capsule(t))):
            tensor = lend(there)
            assert (tensor.shape, tensor.dtype) == (tuple(there.shape), dtype), layout
            assert tensor.device == ("cpu" if device.type == "cpu" else "cuda:0")
            back = torch.from_dlpack(tensor)
            assert back.dtype == there.dtype and back.device.type == device.type
            assert torch.equal(back, there), layout
            assert not there.numel() or back.data_ptr() == there.data_ptr(), layout
            if device.type == "cuda" and dtype != "bf16":
                assert torch.equal(torch.as_tensor(tensor, device="cuda"), there), layout
            assert torch.equal(torch.from_dlpack(tensor.clone()), there), layout


def test_both_sides_see_each_others_writes(device):
    there = torch.zeros(2, 3, device=device)
    back = torch.from_dlpack(voxgrad.from_dlpack(there))
    back[1, 2] = 5
    there[0, 0] = 4
    assert there.sum() == back.sum() == 9


def is_alive(memory):
    """A function that says whether an object that owns memory still exists."""
    reference = weakref.ref(memory)
    return lambda: gc.collect() is not None and reference() is not None


class Owned(np.ndarray):
    """An array that weak references can follow."""


def owned(values):
    return np.array(values, dtype=np.float32).view(Owned)


@pytest.mark.parametrize("lend", [voxgrad.Tensor, voxgrad.from_dlpack])
def test_the_array_lives_as_long_as_what_was_made_of_it(lend):
    array = owned([1, 2, 3])
    alive = is_alive(array)
    tensor = lend(array)
    del array
    assert alive()
    array_again, torchs = np.asarray(tensor), torch.from_dlpack(tensor)
    del tensor
    assert alive()
    assert array_again.tolist() == torchs.tolist() == [1, 2, 3]
    del array_again
    assert alive()
    assert torchs.sum() == 6
    del torchs
    assert not alive()


def test_the_tensor_lives_as_long_as_its_borrowers():
    tensor = voxgrad.Tensor(owned([1, 2, 3])).clone()
    borrowers = [np.asarray(tensor), torch.from_dlpack(tensor), np.from_dlpack(tensor), voxgrad.Tensor(tensor)]
    del tensor
    filler = [np.full(3, 9, np.float32) for _ in range(1000)]
    for borrower in borrowers:
        assert np.asarray(borrower).tolist() == [1, 2, 3]
    assert len(filler) == 1000


@pytest.mark.parametrize("options", [{}, {"max_version": (1, 0)}, {"copy": True}])
def test_an_unused_capsule_gives_its_loan_back(options):
    array = owned([1, 2])
    alive = is_alive(array)
    capsule = voxgrad.Tensor(array).__dlpack__(**options)
    del array
    assert alive() == ("copy" not in options)
    del capsule
    assert not alive()


def test_a_capsule_is_used_once():
    capsule = voxgrad.Tensor(np.ones(2)).__dlpack__()
    assert voxgrad.from_dlpack(capsule).shape == (2,)
    with pytest.raises(ValueError, match="be unused; got b'used_dltensor'"):
        voxgrad.from_dlpack(capsule)
    capsule = voxgrad.Tensor(np.ones(2)).__dlpack__(max_version=(1, 0))
    assert '"dltensor_versioned"' in repr(capsule)
    assert voxgrad.from_dlpack(capsule).dtype == "f64"


def test_a_refused_capsule_remains_its_lenders():
    array = owned([1, 2]).astype(np.int8).view(Owned)
    alive = is_alive(array)
    capsule = array.__dlpack__()
    del array
    with pytest.raises(TypeError, match="from_dlpack: voxgrad has no dtype int8; allowed are float32, float64"):
        voxgrad.from_dlpack(capsule)
    assert alive() and '"dltensor"' in repr(capsule)
    del capsule
    assert not alive()


def test_read_only_memory():
    array = np.arange(3.0)
    array.flags.writeable = False
    tensor = voxgrad.Tensor(array)
    assert tensor.read_only and not np.asarray(tensor).flags.writeable
    with pytest.raises(BufferError, match="read-only, which DLPack before 1.0 cannot describe"):
        tensor.__dlpack__()
    again = voxgrad.from_dlpack(tensor)  # asks for DLPack 1.x
    assert again.read_only
    assert not tensor.clone().read_only
    assert not voxgrad.from_dlpack(tensor.__dlpack__(max_version=(1, 0), copy=True)).read_only


def test_arguments_of_dlpack():
    tensor = voxgrad.Tensor(np.ones(2))
    assert tensor.__dlpack_device__() == (1, 0)
    assert voxgrad.from_dlpack(tensor.__dlpack__(dl_device=(1, 0), copy=False)).shape == (2,)
    with pytest.raises(BufferError, match="on cpu, which is not DLPack's device \\(2, 0\\)"):
        tensor.__dlpack__(dl_device=(2, 0))
    with pytest.raises(ValueError, match="stream must be None for a tensor on the CPU, got 1"):
        tensor.__dlpack__(stream=1)


def test_copies_and_devices():
    tensor = voxgrad.Tensor(values_of(np.float32).transpose(2, 1, 0))
    assert tensor.to("cpu") is tensor
    assert tensor.clone().strides == (12, 3, 1) != tensor.strides
    for wrong in ("gpu", "cpu:0", "cuda:x", "cuda:-1", ""):
        with pytest.raises(ValueError, match="device must be 'cpu', 'cuda' or 'cuda:<number>'"):
            tensor.to(wrong)
    if not (voxgrad.has_cuda() and torch.cuda.is_available()):
        with pytest.raises(RuntimeError, match="no CUDA|no usable CUDA device"):
            tensor.to("cuda")


def test_repr():
    assert repr(voxgrad.Tensor(np.ones((2, 3)))) == "voxgrad.Tensor(shape=(2, 3), dtype=f64, device=cpu)"


class Interface:
    def __init__(self, **changes):
        self.memory = np.arange(6, dtype=np.float32)
        self.__array_interface__ = {**self.memory.__array_interface__, "shape": (2, 3), "strides": (12, 4), **changes}


REFUSED = [
    (dict(typestr=">f4"), TypeError, "elements of type >f4; allowed are <f4"),
    (dict(typestr="<M8[ns]"), TypeError, "elements of type <M8"),
    (dict(typestr="|O"), TypeError, r"elements of type \|O"),
    (dict(typestr="<f36"), TypeError, "elements of type <f36"),
    (dict(typestr="<f0"), TypeError, "elements of type <f0"),
    (dict(typestr="<u4"), TypeError, "no dtype uint32"),
    (dict(typestr="<c8", strides=None), TypeError, "no dtype complex64"),
    (dict(typestr="|V4"), TypeError, "no dtype opaque32"),
    (dict(typestr="<U1"), TypeError, "no dtype opaque8"),
    (dict(mask=1), TypeError, "has a mask"),
    (dict(data=b"abc"), TypeError, "has no address"),
    (dict(data=None), TypeError, "has no address"),
    (dict(data=(0, False)), ValueError, "the pointer is null"),
    (dict(data=(2, False)), ValueError, "not aligned"),
    (dict(shape=(2, -3)), ValueError, "a size must be >= 0"),
    (dict(shape=(2**64 + 2, 3)), TypeError, "do not fit 64 bits"),
    (dict(shape=(2**62, 3)), ValueError, "2\\^63|overflow"),
    (dict(shape=(1,) * 9, strides=None), ValueError, "0 to 8 dimensions, got 9"),
    (dict(strides=(-12, 4)), ValueError, "strides must be >= 0"),
    (dict(strides=(6, 4)), TypeError, "not 2 multiples of 4 bytes"),
    (dict(strides=(12,)), TypeError, "not 2 multiples"),
    (dict(strides=(2**70, 4)), TypeError, "do not fit 64 bits"),
]


@pytest.mark.parametrize("changes, kind, message", REFUSED, ids=[str(i) for i in range(len(REFUSED))])
def test_refused_interfaces(changes, kind, message):
    source = Interface(**changes)
    alive = is_alive(source)
    with pytest.raises(kind, match=message):
        voxgrad.Tensor(source)
    del source
    assert not alive()


def test_refused_objects():
    assert voxgrad.Tensor(Interface()).shape == (2, 3)
    for wrong in (3, "x", None, [1.0], object()):
        with pytest.raises(TypeError, match="Tensor: needs an object with __array_interface__"):
            voxgrad.Tensor(wrong)
        with pytest.raises(TypeError, match="from_dlpack: needs an object with __dlpack__, or a capsule, got"):
            voxgrad.from_dlpack(wrong)
    for wrong in (np.ma.masked_array(np.ones(3), [0, 1, 0]), np.ones(3)[::-1], np.ones(3, np.uint32), np.array([None]),
                  np.array(["x"]), np.ones(2, "V3")):
        with pytest.raises((TypeError, ValueError)):
            voxgrad.Tensor(wrong)
    with pytest.raises((RuntimeError, BufferError)):
        voxgrad.from_dlpack(torch.ones(2, requires_grad=True))
    with pytest.raises((RuntimeError, BufferError, TypeError)):
        voxgrad.from_dlpack(torch.ones(2).to_sparse())


def test_interfaces_that_do_not_fit_are_absent():
    tensor = voxgrad.from_dlpack(torch.ones(2, dtype=torch.bfloat16))
    assert not hasattr(tensor, "__array_interface__") and not hasattr(tensor, "__cuda_array_interface__")
    assert not hasattr(voxgrad.Tensor(np.ones(2)), "__cuda_array_interface__")


def resident_bytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def exchange_often(count):
    array = np.ones((4, 5), np.float32)
    for _ in range(count):
        tensor = voxgrad.Tensor(array)
        np.asarray(tensor), torch.from_dlpack(tensor), tensor.__dlpack__(), voxgrad.from_dlpack(torch.ones(3)).clone()
        try:
            voxgrad.Tensor(array[::-1])
        except ValueError:
            pass


def test_many_exchanges_keep_no_memory():
    exchange_often(1000)
    before = resident_bytes()
    exchange_often(10000)
    gc.collect()
    assert resident_bytes() - before < 4 * 2**20


def test_threads_at_once():
    array = owned([1, 2])
    alive = is_alive(array)

    def work():
        for _ in range(300):
            np.asarray(voxgrad.Tensor(array)), torch.from_dlpack(voxgrad.Tensor(array))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    del array, work
    assert not alive()


def test_the_interpreter_ends_with_tensors_alive():
    code = """
import numpy, torch, voxgrad
array = numpy.ones(3)
tensors = [voxgrad.Tensor(array), voxgrad.from_dlpack(torch.ones(3)), voxgrad.Tensor(array).clone()]
others = [torch.from_dlpack(tensor) for tensor in tensors] + [numpy.asarray(tensor) for tensor in tensors]
capsules = [tensor.__dlpack__() for tensor in tensors]
cycle = [tensors, capsules]
cycle.append(cycle)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")


def test_a_capsule_may_go_away_while_an_exception_is_raised():
    def fails():
        capsules = [voxgrad.Tensor(np.ones(2)).__dlpack__() for _ in range(3)]
        raise KeyError(len(capsules))

    with pytest.raises(KeyError, match="3"):
        fails()


@pytest.mark.cuda
def test_cuda_array_interface_and_streams():
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        late = torch.ones(1000, device="cuda")
        copied = voxgrad.from_dlpack(late).clone()  # waits for the side stream
        assert torch.equal(torch.from_dlpack(copied), torch.ones(1000, device="cuda"))
    interface = copied.__cuda_array_interface__
    assert interface["version"] == 3 and interface["stream"] not in (0, None) and interface["typestr"] == "<f4"

    class OnlyInterface:
        __cuda_array_interface__ = late.__cuda_array_interface__

    tensor = voxgrad.Tensor(OnlyInterface())
    assert tensor.device == "cuda:0" and torch.equal(torch.from_dlpack(tensor), late)
    host = torch.ones(3).pin_memory()
    OnlyInterface.__cuda_array_interface__ = {**late.__cuda_array_interface__, "data": (host.data_ptr(), False)}
    with pytest.raises(ValueError, match="memory of a CUDA device"):
        voxgrad.Tensor(OnlyInterface())
    assert voxgrad.from_dlpack(host).device == "cpu"
    assert torch.equal(torch.from_dlpack(copied.to("cpu")), torch.ones(1000))
    assert copied.to("cpu").to("cuda").device == "cuda:0"
    for wrong in (0, -2, 1.5, "1"):
        with pytest.raises(ValueError, match="stream must be None, -1"):
            copied.__dlpack__(stream=wrong)
    for stream in (None, -1, 1, 2, side.cuda_stream):
        assert voxgrad.from_dlpack(copied.__dlpack__(stream=stream)).shape == (1000,)


@pytest.mark.parametrize("dtype", OF_TORCH)
def test_jax(dtype):
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    names = {"f32": "float32", "f64": "float64", "bf16": "bfloat16", "f16": "float16", "i64": "int64", "u8": "uint8"}
    array = jax.device_put(jax.numpy.arange(6).reshape(2, 3).astype(names.get(dtype, dtype)), jax.devices("cpu")[0])
    for lend in (voxgrad.Tensor, voxgrad.from_dlpack):
        tensor = lend(array)
        assert (tensor.shape, tensor.dtype) == ((2, 3), dtype)
        back = jax.numpy.from_dlpack(tensor)
        assert back.unsafe_buffer_pointer() == array.unsafe_buffer_pointer()
        assert (back == array).all() and (jax.numpy.from_dlpack(tensor.clone()) == array).all()


@pytest.mark.cuda
def test_cupy_and_numba():
    cupy, numba = pytest.importorskip("cupy"), pytest.importorskip("numba.cuda")
    for array in (cupy.arange(6.0).reshape(2, 3), cupy.arange(12.0).reshape(3, 4)[::2, 1:3].T):
        tensor = voxgrad.Tensor(array)
        assert (tensor.shape, tensor.dtype, tensor.device) == (array.shape, "f64", "cuda:0")
        for back in (cupy.from_dlpack(tensor), cupy.asarray(tensor)):
            assert back.data.ptr == array.data.ptr and (back == array).all()
        assert (cupy.asarray(tensor.clone()) == array).all()
    ones = numba.to_device(np.ones((2, 3), np.float32))
    assert numba.as_cuda_array(voxgrad.Tensor(ones).clone()).copy_to_host().sum() == 6


def test_copies_share_or_own_memory():
    array = np.ones((2, 3), np.float32)
    tensor = voxgrad.Tensor(array)
    shallow, deep = copy.copy(tensor), copy.deepcopy(tensor)
    array[0, 0] = 5
    assert np.asarray(shallow)[0, 0] == 5 and np.asarray(deep)[0, 0] == 1
    del shallow, deep
    assert np.asarray(tensor.clone())[0, 0] == 5
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(tensor)


def test_attributes_cannot_be_set():
    tensor = voxgrad.Tensor(np.ones((2, 3), np.float32))
    for name, value in (("shape", (10**9,)), ("strides", (1,)), ("dtype", "f64"), ("read_only", False), ("x", 1)):
        with pytest.raises(AttributeError, match=f"Tensor.{name}: .*cannot be set"):
            setattr(tensor, name, value)
    tensor.__init__(np.zeros(4, np.float32))  # gives the first handle back
    assert tensor.shape == (4,)


def test_a_capsule_belongs_to_one_of_several_threads():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(100):
            capsule = voxgrad.Tensor(np.ones(3, np.float32)).__dlpack__(max_version=(1, 0))
            barrier, got = threading.Barrier(4), []

            def take():
                barrier.wait()
                try:
                    got.append(voxgrad.from_dlpack(capsule))
                except ValueError:
                    pass

            threads = [threading.Thread(target=take) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(got) == 1
    finally:
        sys.setswitchinterval(interval)


class Described:
    def __init__(self, interface):
        self.__array_interface__ = interface

    def __str__(self):
        return str(self.__array_interface__)


@pytest.mark.parametrize("source", [
    np.ndarray, torch._neg_view(torch.ones(3)), Described(5),
    Described(dict(shape=3, typestr="<f4", data=(8, False))),
    Described(dict(shape=(3,), typestr="<f4", data=(8,))), Described(dict(shape=(3,), typestr=None, data=(8, False))),
    Described(dict(shape=(3,), typestr="<f4", data=("x", False))),
], ids=str)
def test_sources_that_describe_no_memory(source):
    with pytest.raises(TypeError, match="Tensor: "):
        voxgrad.Tensor(source)


@pytest.mark.parametrize("device", [None, "cpu:", "cpu:0", "cuda:x", "cuda:\u0663", 1.5])
def test_devices_that_do_not_exist(device):
    with pytest.raises(ValueError, match="Tensor.to: device must be"):
        voxgrad.Tensor(np.ones(2)).to(device)
