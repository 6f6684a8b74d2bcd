"""Recording where there is no GPU to record on: what is asked of torch, in success and in failure."""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from splitveil.functional.recording import recording

POOL = (0, 7)


class Drawing:
    """A generator on the second GPU."""

    def __init__(self, device: Any = "cuda:1") -> None:
        self.device = torch.device(device)
        self.state = "as it was"
        self.shared: Drawing | None = None

    def get_state(self) -> str:
        return self.state

    def set_state(self, state: str) -> None:
        self.state = state

    def graphsafe_set_state(self, other: Drawing) -> None:
        self.shared = other


class Log(list[Any]):
    """What was called, in order."""

    def within(self, name: str, *also: Any) -> AbstractContextManager[None]:
        @contextmanager
        def block() -> Any:
            self.append((f"enter {name}", *also))
            try:
                yield
            finally:
                self.append((f"leave {name}", *also))

        return block()


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    calls = Log()
    monkeypatch.setattr("splitveil.functional.recording._stream", lambda device: f"own of {device}")
    graph = SimpleNamespace(register_generator_state=lambda generator: calls.append(("register", generator)))
    fakes: dict[str, Any] = {
        "CUDAGraph": lambda: graph,
        "graph_pool_handle": lambda: POOL,
        "default_generators": [Drawing("cuda:0"), Drawing("cuda:1")],
        "synchronize": lambda: None,
        "current_device": lambda: 1,
        "device": lambda device: calls.within("device", str(device)),
        "stream": lambda stream: calls.within("stream", stream),
        "current_stream": lambda device: f"current of {device}",
        "graph": lambda graph, pool, stream, capture_error_mode: calls.within("graph", pool, stream),
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(torch, "Generator", Drawing)

    def ended(device, pool):
        return calls.append(("end", device, pool))

    def released(device, pool):
        return calls.append(("release", device, pool))

    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", ended, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_releasePool", released, raising=False)
    return calls


@pytest.mark.parametrize("device", ["cuda:1", "cuda"])  # torch names no number where none was asked for
def test_it_records_on_the_device_of_the_generators(log: Log, device: str) -> None:
    """Not on the current one: a graph of another device would be empty, and its replay would compute nothing."""
    generator: Any = Drawing(device)
    with recording([generator]):
        log.append("work")
    assert log.index(("enter device", "cuda:1")) < log.index(("enter graph", POOL, "own of cuda:1"))
    assert log.index(("enter graph", POOL, "own of cuda:1")) < log.index("work")
    assert log[-1] == ("leave device", "cuda:1")
    assert not any(entry[0] in ("end", "release") for entry in log)
    assert generator.shared is None


def test_a_failure_gives_memory_and_random_numbers_back(log: Log) -> None:
    generator: Any = Drawing()
    with pytest.raises(ValueError, match="looked at the host"), recording([generator]):
        raise ValueError("looked at the host")
    assert [entry for entry in log if entry[0] in ("end", "release")] == [("end", 1, POOL), ("release", 1, POOL)]
    for stream in (generator, torch.cuda.default_generators[1]):
        assert stream.shared.state == "as it was"
    assert torch.cuda.default_generators[0].shared is None  # type: ignore[attr-defined]


def test_memory_that_torch_has_taken_back_is_not_given_back_twice(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(device: int, pool: tuple[int, int]) -> None:
        raise RuntimeError("not currently recording")

    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", ended)
    with pytest.raises(ValueError, match="an error of Python's"), recording([Drawing()]):  # type: ignore[list-item]
        raise ValueError("an error of Python's")
    assert not any(entry[0] == "release" for entry in log)
