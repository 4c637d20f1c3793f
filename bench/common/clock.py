"""Medians of times on the CPU or the GPU."""

import statistics
import time

FLUSH_BYTES = 256 << 20  # more than any cache holds
HEAD_START = 400_000  # GPU cycles, about 0.2 ms, in which the host submits the work
SPIN = 0.02  # seconds after the flush until PyTorch's threads sleep; until then they occupy the cores


class Clock:
    """Medians of times. voxgrad's and PyTorch's work runs in one stream, voxgrad's, and is timed by the same events."""

    def __init__(self, torch, device, stream, repeats, seconds, flush_bytes=FLUSH_BYTES):
        self._torch, self._device, self._stream = torch, device, stream
        self._repeats, self._seconds = repeats, seconds
        self._flush = torch.empty(flush_bytes // 4, device=device)

    def median_ms(self, f):
        """The median time of f(), after a warm-up: of as many runs as fit into `seconds`, from 3 to `repeats`."""
        estimate = self._times(f, 1)[0]
        if estimate < 1e3 * self._seconds / 10:  # a long run warms up only once
            estimate = self._times(f, 2)[1]
        affordable = int(1e3 * self._seconds / max(estimate, 1e-3))
        return statistics.median(self._times(f, max(3, min(self._repeats, affordable))))

    def _times(self, f, count):
        return (self._device_times if self._device == "cuda" else self._wall_times)(f, count)

    def _device_times(self, f, count):
        events = []
        for i in range(count):
            # The GPU sleeps and flushes its cache while the host submits `f`, so a slow host does not lengthen the
            # time.
            self._torch.cuda._sleep(HEAD_START)
            self._flush.fill_(i + 1.0)
            pair = [self._torch.cuda.Event(enable_timing=True) for _ in range(2)]
            pair[0].record(self._stream)
            f()
            pair[1].record(self._stream)
            events.append(pair)
        self._stream.synchronize()
        return [start.elapsed_time(end) for start, end in events]

    def _wall_times(self, f, count):
        times = []
        for i in range(count):
            self._flush.fill_(i + 1.0)
            time.sleep(SPIN)
            start = time.perf_counter()
            f()
            times.append(1e3 * (time.perf_counter() - start))
        return times

    def interleaved_ms(self, works):
        """The median time of each of `works`, wall clock. They are run in turns: one is repeated, without a pause,
        for about a twentieth of `seconds`, then the next. So the time of the host counts too."""
        counts = []
        for work in works:
            self._block_ms(work, 1)
            counts.append(max(1, int(1e3 * self._seconds / 20 / max(self._block_ms(work, 2), 1e-3))))
        times, start = [[] for _ in works], time.monotonic()
        while len(times[0]) < 3 or time.monotonic() - start < self._seconds * len(works):
            for work, count, found in zip(works, counts, times):
                found.append(self._block_ms(work, count))
        return [statistics.median(found) for found in times]

    def _block_ms(self, work, count):
        """Mean wall-clock time of `count` runs."""
        self._synchronize()
        start = time.perf_counter()
        for _ in range(count):
            work()
        self._synchronize()
        return 1e3 * (time.perf_counter() - start) / count

    def _synchronize(self):
        if self._stream is not None:
            self._stream.synchronize()
