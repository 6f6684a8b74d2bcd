"""What a server counts, as the text that Prometheus reads: numbers about traffic, never the value of a feature."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Histogram:
    """Counts of observations at or below each border."""

    def __init__(self, borders: tuple[float, ...]) -> None:
        self.borders, self.counts, self.total = borders, [0] * (len(borders) + 1), 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.borders, value)] += 1
        self.total += value

    def lines(self, name: str) -> Iterator[str]:
        below = 0
        for border, count in zip((*self.borders, None), self.counts, strict=True):
            below += count
            yield f'{name}_bucket{{le="{"+Inf" if border is None else f"{border:g}"}"}} {below}'
        yield f"{name}_sum {self.total:.9g}"
        yield f"{name}_count {below}"


class Metrics:
    """Requests, errors, pictures, latency and batch sizes of one server; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.requests: Counter[int] = Counter()  # by status
        self.refused = 0
        self.pictures = 0
        self.received_bytes = 0
        self.latency = Histogram(SECONDS)
        self.batches = Histogram(SIZES)

    def request(self, status: int, seconds: float) -> None:
        """One request was answered."""
        with self._lock:
            self.requests[status] += 1
            self.latency.add(seconds)

    def refuse(self) -> None:
        """A request, of whatever route, came without the right token or for another name."""
        with self._lock:
            self.refused += 1

    def message(self, pictures: int, size: int) -> None:
        """A message of `size` bytes was understood."""
        with self._lock:
            self.pictures += pictures
            self.received_bytes += size

    def batch(self, pictures: int) -> None:
        """`pictures` went through the network at once."""
        with self._lock:
            self.batches.add(pictures)

    def text(self) -> str:
        """All of it in Prometheus' text format."""
        with self._lock:
            errors = sum(count for status, count in self.requests.items() if status >= 400)
            lines = [
                *_head("splitveil_requests_total", "counter", "Requests for answers, by status."),
                *(f'splitveil_requests_total{{status="{one}"}} {self.requests[one]}' for one in sorted(self.requests)),
                *_head("splitveil_errors_total", "counter", "Requests that got no answer."),
                f"splitveil_errors_total {errors}",
                *_head("splitveil_refused_total", "counter", "Requests without the right token or host, on any route."),
                f"splitveil_refused_total {self.refused}",
                *_head("splitveil_pictures_total", "counter", "Pictures in the messages that were understood."),
                f"splitveil_pictures_total {self.pictures}",
                *_head("splitveil_received_bytes_total", "counter", "Bytes of the messages that were understood."),
                f"splitveil_received_bytes_total {self.received_bytes}",
                *_head("splitveil_request_seconds", "histogram", "Time from a request to its answer."),
                *self.latency.lines("splitveil_request_seconds"),
                *_head("splitveil_batch_pictures", "histogram", "Pictures that went through the network at once."),
                *self.batches.lines("splitveil_batch_pictures"),
            ]
        return "\n".join(lines) + "\n"


def _head(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
