"""Medians of fair timings. Ours and PyTorch's work runs in one stream, voxgrad's, and is timed alike."""

import statistics
import time

FLUSH_BYTES = 256 << 20  # more than any cache it has to push out
HEAD_START = 400_000  # GPU cycles, about 0.2 ms, in which the host submits what is timed
SPIN = 0.02  # seconds: PyTorch's threads wait awake after the flush, on the cores that what is timed needs


class Clock:
    def __init__(self, torch, device, stream, repeats, seconds):
        self._torch, self._device, self._stream = torch, device, stream
        self._repeats, self._seconds = repeats, seconds
        self._flush = torch.empty(FLUSH_BYTES // 4, device=device)

    def median_ms(self, f):
        """Warm-up, then up to `repeats` runs in about `seconds`, at least three; the result is dropped."""
        estimate = self._times(f, 1)[0]
        if estimate < 1e3 * self._seconds / 10:  # a run that is no small part of the budget warms up once
            estimate = self._times(f, 2)[1]
        affordable = int(1e3 * self._seconds / max(estimate, 1e-3))
        return statistics.median(self._times(f, max(3, min(self._repeats, affordable))))

    def _times(self, f, count):
        return (self._device_times if self._device == "cuda" else self._wall_times)(f, count)

    def _device_times(self, f, count):
        events = []
        for i in range(count):
            # While the GPU sleeps and writes, the host submits `f`: a slow host does not count as slow work.
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
