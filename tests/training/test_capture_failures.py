"""Steps on several streams where there is no GPU: failed recordings, and memory that another stream reads."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from splitveil.training import capture
from splitveil.training.engine import Engine


@pytest.fixture
def no_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = SimpleNamespace(device=torch.device("cpu"), wait_stream=lambda other: None)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: fake)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: fake)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())


def a_step(ran: list[int]) -> Any:
    """As much of a TrainStep as a recording needs; it notes the size of every batch that it runs on."""
    return SimpleNamespace(
        noise=torch.Generator(),
        stage="joint",
        names=(),
        newest=torch.zeros(0),
        parts=SimpleNamespace(surrogate=None),
        turn=lambda: (False, False),
        done=lambda: None,
        run=lambda images, y: ran.append(len(images)),
    )


@pytest.mark.usefixtures("no_streams")
def test_after_a_failure_no_earlier_recording_is_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would draw from a state of the generator that nobody seeds any more."""
    works, replayed = [True], []
    ran: list[int] = []

    @contextmanager
    def recording(generators: Any) -> Any:
        if not works[0]:
            raise RuntimeError("it looks at the host")
        yield SimpleNamespace(replay=lambda: replayed.append(1))

    monkeypatch.setattr(capture, "recording", recording)
    captured = capture.CapturedStep(a_step(ran))
    small, large = torch.zeros(2, 1), torch.zeros(3, 1)
    for _ in range(capture.EAGER_STEPS + 1):
        captured(small, small)
    assert len(replayed) == 1
    works[0] = False
    for _ in range(capture.EAGER_STEPS + 1):
        captured(large, large)
    ran.clear()
    captured(small, small)
    assert len(replayed) == 1
    assert ran == [2]


@pytest.mark.usefixtures("no_streams")
def test_a_recording_whose_first_replay_fails_is_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def replay() -> None:
        raise RuntimeError("the graph does not fit")

    monkeypatch.setattr(capture, "recording", lambda generators: nullcontext(SimpleNamespace(replay=replay)))
    ran: list[int] = []
    captured = capture.CapturedStep(a_step(ran))
    batch = torch.zeros(2, 1)
    for _ in range(capture.EAGER_STEPS + 3):
        captured(batch, batch)
    assert len(ran) == capture.EAGER_STEPS + 3 + 1  # every step ran, and one was recorded besides
    assert [message for message in caplog.messages if "could not be captured" in message] == [
        "the step could not be captured (RuntimeError: the graph does not fit); training runs eagerly"
    ]


def test_what_the_surrogate_reads_on_its_own_stream_is_kept_for_it(
    make_engine: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its backward pass may read memory that the other stream has been given in the meantime."""
    engine = make_engine(surrogate={"name": "gated"})
    fake = SimpleNamespace(wait_stream=lambda other: None)
    kept, seen = [], []
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: fake)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: kept.append((tensor.data_ptr(), stream)))
    parts = engine.step.parts
    parts.side, inner = fake, parts.private  # type: ignore[assignment]

    def private(z: torch.Tensor, y: torch.Tensor, epoch: int) -> Any:
        seen.extend([(z.data_ptr(), fake), (y.data_ptr(), fake)])
        return inner(z, y, epoch)

    parts.private = private
    engine.step.active = True
    engine.step(*next(iter(engine._batches(1))))
    assert seen
    assert kept == seen
