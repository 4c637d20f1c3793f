"""voxgrad, through the C ABI of shim.cpp, on the memory of torch tensors. Needs no torch itself."""

import sys
from contextlib import contextmanager
from ctypes import byref, c_char_p, c_int, c_int64, c_void_p
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "capi"))
import capi  # noqa: E402

from .program import Program  # noqa: E402

DTYPES = [f"torch.{name}" for name in ("float32", "float64", "int64", "uint8", "bool", "bfloat16", "float16")]  # by vox::DType


def find(path=None):
    """`path`, or the newest library under build/."""
    if path:
        return path
    found = sorted(ROOT.glob("build/*/bench/libvoxgrad_bench.so"), key=lambda file: file.stat().st_mtime)
    if not found:
        sys.exit("bench: no libvoxgrad_bench.so under build/; build the target voxgrad_bench first")
    return found[-1]


class Library(capi.Library):
    def __init__(self, path):
        super().__init__(Path(path).resolve())

    def bench(self, name, *arguments):
        self.call("bench_" + name, *arguments)

    def set_precision(self, precision):
        """Sets how f32 is computed; "bf16" and "f16" are dtypes of tensors, for which there is nothing to set."""
        if precision not in ("bf16", "f16"):
            self.bench("precision", precision.encode())

    def set_threads(self, threads):
        self.call("set_num_threads", c_int(threads))

    def stream(self):
        stream = c_void_p()
        self.bench("stream", byref(stream))
        return stream.value

    def memory(self, reset=False):
        """Bytes in use, and their peak."""
        in_use, peak = c_int64(), c_int64()
        self.bench("memory", byref(in_use), byref(peak), c_int(reset))
        return in_use.value, peak.value

    def empty_cache(self):
        self.bench("empty_cache")

    @contextmanager
    def handles(self, tensors):
        """An array of vox::Tensor* on the memory of dense tensors, for one call."""
        made = (c_void_p * len(tensors))()
        try:
            for i, tensor in enumerate(tensors):
                if not tensor.is_contiguous():
                    raise ValueError("voxgrad takes dense tensors here")
                numbers, handle = c_int64 * max(1, tensor.dim()), c_void_p()
                self.call("tensor_on", c_void_p(tensor.data_ptr()), c_int(DTYPES.index(str(tensor.dtype))),
                          c_int(tensor.device.index or 0 if tensor.is_cuda else -1), c_int64(tensor.dim()),
                          numbers(*tensor.shape), numbers(*tensor.stride()), c_int(tensor.requires_grad), byref(handle))
                made[i] = handle
            yield made
        finally:
            for handle in made:
                self.loaded.voxgrad_tensor_free(c_void_p(handle))

    def task(self, benchmark, name, pass_, operands, options=(), names=None):
        """A task that shim.cpp defines."""
        names = (c_char_p * len(operands))(*[n.encode() for n in names or [""] * len(operands)])
        with self.handles(operands) as tensors:
            return Task(self, operands, "task", benchmark.encode(), name.encode(), pass_.encode(),
                        (c_int64 * len(options))(*options), c_int(len(options)), tensors, names, c_int(len(tensors)))

    def program(self, function, pass_, operands):
        """A pass of function(program, *operands), whose ops are the program's (program.py). The last operand is the
        gradient of the result, except for "forward"."""
        inputs = operands if pass_ == "forward" else operands[:-1]
        steps = Program(inputs).record(function)
        with self.handles(operands) as tensors:
            return Task(self, [operands, steps], "program", pass_.encode(), steps, c_int(len(steps)), tensors,
                        c_int(len(tensors)))


def conv_options(stride=1, padding=0, dilation=1, groups=1, output_padding=0):
    """The options of the tasks "conv"; numbers along each axis, or one for all."""
    triples = ((v,) * 3 if isinstance(v, int) else tuple(v) for v in (stride, padding, dilation, output_padding))
    return [*sum(triples, ()), groups]


class Task:
    """Prepared work on `operands`; a call runs it once. It holds memory: use it as a context manager."""

    def __init__(self, library, kept, function, *arguments):
        self._library, self._kept, self._handle = library, kept, c_void_p()  # keeps the operands' memory
        library.bench(function, *arguments, byref(self._handle))

    def __call__(self):
        self._library.call("bench_task_run", self._handle)

    def results(self, templates):
        """Copies of the last run's results, which have the shapes of `templates`, in their dtypes."""
        copies = []
        for index, template in enumerate(templates):
            copy = template.detach().clone().contiguous().fill_(0)
            with self._library.handles([copy]) as (to,):
                self._library.bench("task_result", self._handle, c_int(index), c_void_p(to))
            copies.append(copy)
        return copies

    def poison(self, count):
        """Writes NaN over the `count` results of the last run and gives their memory back. Returns where they lay."""
        addresses = self.addresses(count)
        self._library.bench("task_poison", self._handle)
        return addresses

    def addresses(self, count):
        found = []
        for index in range(count):
            address = c_void_p()
            self._library.bench("task_address", self._handle, c_int(index), byref(address))
            found.append(address.value)
        return found

    def kernel(self):
        """The kernel that voxgrad's conv3d table chose, or ""."""
        name = c_char_p()
        self._library.bench("task_kernel", self._handle, byref(name))
        return name.value.decode()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._library.bench("task_free", self._handle)
        self._handle = c_void_p()
