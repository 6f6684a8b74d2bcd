"""What a run keeps besides metrics.jsonl: train.log and TensorBoard scalars."""

from __future__ import annotations

import errno
import logging
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.loaded_process import run_script

import splitveil as sv
from splitveil.cli.progress import epoch_words
from splitveil.core.config import Config
from splitveil.core.errors import TrainingError
from splitveil.training import distributed
from splitveil.training.guards import NEVER_ACTED
from splitveil.training.tracking import recording

MakeConfig = Callable[..., Config]
LOG = logging.getLogger("splitveil.training")
ROW = {"epoch": 3, "task_loss": 0.5, "skipped": 2, "accuracy": None, "note": "words"}


class StubWriter:
    """Stands for torch.utils.tensorboard.SummaryWriter."""

    made: list[StubWriter]

    def __init__(self, path: str, purge_step: int) -> None:
        self.path, self.purge_step = path, purge_step
        self.scalars: list[tuple[str, float, int]] = []
        self.open = True
        self.made.append(self)

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.scalars.append((name, value, step))

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.open = False


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> type[StubWriter]:
    module = ModuleType("torch.utils.tensorboard")
    StubWriter.made = []
    module.SummaryWriter = StubWriter  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    return StubWriter


@pytest.fixture
def no_tensorboard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)


def test_numbers_of_an_epoch_become_scalars(stub: type[StubWriter], tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    with recording(tmp_path, seen.append) as record:
        assert stub.made == []  # nothing is opened before there is something to write
        record(ROW)
    (writer,) = stub.made
    assert Path(writer.path) == tmp_path / "tensorboard"
    assert writer.purge_step == 3
    assert writer.scalars == [("task_loss", 0.5, 3), ("skipped", 2, 3)]
    assert not writer.open
    assert seen == [ROW]


def test_the_writer_is_closed_when_a_run_fails(stub: type[StubWriter], tmp_path: Path) -> None:
    def stop(row: dict[str, Any]) -> None:
        raise TrainingError("stop")

    with pytest.raises(TrainingError), recording(tmp_path, stop) as record:
        record(ROW)
    assert not stub.made[0].open


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_disk_without_room_for_curves_is_told_once_and_training_goes_on(
    stub: type[StubWriter], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """TensorBoard writes in a thread, whose traceback Python would print; `flush` and `close` raise its error again."""
    told: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", told.append)
    no_room = OSError(errno.ENOSPC, "No space left on device")

    def fail(self: StubWriter) -> None:
        raise no_room

    def in_a_thread(error: Exception) -> None:
        thread = threading.Thread(target=lambda: (_ for _ in ()).throw(error).__next__())
        thread.start()
        thread.join()

    monkeypatch.setattr(stub, "flush", fail)
    monkeypatch.setattr(stub, "close", fail)
    seen: list[dict[str, Any]] = []
    with recording(tmp_path, seen.append) as record:
        in_a_thread(no_room)
        in_a_thread(KeyError("a fault of another kind"))
        in_a_thread(ConnectionResetError(errno.ECONNRESET, "a fault of somebody else's thread"))
        record(ROW)
        record({**ROW, "epoch": 4})
    assert [row["epoch"] for row in seen] == [3, 4]
    assert caplog.text.count("cannot be written (No space left on device): TensorBoard gets no further numbers") == 1
    assert [failed.exc_type for failed in told] == [KeyError, ConnectionResetError]
    in_a_thread(no_room)
    assert len(told) == 3  # afterwards all is as it was


def test_a_log_file_without_room_prints_no_traceback(
    no_tensorboard: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    (tmp_path / "train.log").symlink_to("/dev/full")
    with recording(tmp_path):
        LOG.warning("one")
    assert "Traceback" not in capsys.readouterr().err


def test_absence_of_tensorboard_is_silent(no_tensorboard: None, tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    with recording(tmp_path, seen.append) as record:
        record(ROW)
    assert seen == [ROW]
    assert [path.name for path in tmp_path.iterdir()] == ["train.log"]


def test_a_run_can_be_read_by_tensorboard(make_config: MakeConfig, tmp_path: Path) -> None:
    accumulation = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    folder = sv.train(make_config("train.epochs=2", surrogate={"name": "rate"}), out=tmp_path / "run")
    events = accumulation.EventAccumulator(str(folder.path / "tensorboard"))
    events.Reload()
    for name in ("task_loss", "rob_loss", "intra_mse", "accuracy"):
        kept = {event.step: event.value for event in events.Scalars(name)}
        rows = {row["epoch"]: pytest.approx(row[name], rel=1e-6) for row in folder.metrics() if row[name] is not None}
        assert kept == rows


def test_the_log_file_holds_what_the_package_logs(
    no_tensorboard: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="splitveil"), recording(tmp_path):
        LOG.info("a gate line")
        LOG.warning("the regulariser was shut off")
        logging.getLogger("somebody.else").warning("not ours")
    LOG.warning("after the run")
    lines = (tmp_path / "train.log").read_text().splitlines()
    assert [line.split(maxsplit=2)[2] for line in lines] == [
        "INFO a gate line",
        "WARNING the regulariser was shut off",
    ]


def test_the_log_file_is_appended_to_and_released(no_tensorboard: None, tmp_path: Path) -> None:
    before = list(logging.getLogger("splitveil").handlers)
    for word in ("first", "second"):
        with recording(tmp_path):
            LOG.warning(word)
    assert [line.split()[-1] for line in (tmp_path / "train.log").read_text().splitlines()] == ["first", "second"]
    assert logging.getLogger("splitveil").handlers == before


def test_other_processes_write_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(distributed, "world", lambda: (1, 2))
    with recording(tmp_path) as record:
        record(ROW)
    assert list(tmp_path.iterdir()) == []


def test_without_a_logging_setup_gate_lines_reach_the_file_and_the_screen_stays_clean(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import logging, sys; from pathlib import Path; from splitveil.training.tracking import recording\n"
        "sys.modules['torch.utils.tensorboard'] = None\n"
        f"with recording(Path({str(tmp_path)!r})): logging.getLogger('splitveil.training').info('a gate line')"
    )
    done = run_script(script)
    assert done.returncode == 0
    assert done.stdout + done.stderr == ""
    assert "INFO a gate line" in (tmp_path / "train.log").read_text()


def test_a_run_logs_its_gates_and_warnings(
    make_config: MakeConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = make_config("train.epochs=2", "train.warmup_epochs=1", surrogate={"name": "gated", "mode": "faithful"})
    with caplog.at_level(logging.INFO, logger="splitveil"):
        folder = sv.train(config, out=tmp_path / "run")
    text = (folder.path / "train.log").read_text()
    assert "[CEM-GATE][OK] epoch=2 step=1 " in text
    assert "epoch=1 " not in text


def test_a_person_sees_losses_gates_and_accuracy(make_config: MakeConfig, tmp_path: Path) -> None:
    shown: list[str] = []
    config = make_config("train.epochs=2", "train.warmup_epochs=1", surrogate={"name": "gated", "mode": "faithful"})
    sv.train(config, out=tmp_path / "run", on_epoch=lambda row: shown.append(epoch_words(row)))
    for label in ("accuracy", "loss", "surrogate", "spread", "gate", "SNR gate"):
        assert f"{label} " in shown[1]
    assert "surrogate" not in shown[0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (("train.epochs=4",), "INFO the surrogate acts in epochs 2 to 2 of 4"),
        (("train.epochs=2",), "WARNING the surrogate acts in no epoch: a defence freezes the edge from epoch 2 of 2"),
        (("train.epochs=4", "train.warmup_epochs=2"), "WARNING the surrogate acts in no epoch"),
        (("train.epochs=3", "defence.shredder.freeze=false"), None),
        (("train.epochs=3", "defence.shredder.start=0.9"), None),  # frozen after the last epoch: never
        (("train.epochs=2", "train.privacy_weight=0"), None),  # it was not to act at all
    ],
)
def test_a_surrogate_whose_edge_is_frozen_is_told_in_the_log(
    changes: tuple[str, ...],
    words: str | None,
    make_config: MakeConfig,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="splitveil")
    config = make_config("defence.shredder={}", *changes, surrogate={"name": "rate"})
    run = sv.train(config, out=tmp_path / "run")
    said = (run.path / "train.log").read_text()
    assert ("the surrogate acts in" in said) == (words is not None)
    counted = (run.read_json("result.json") or {})["guards"].get(NEVER_ACTED, 0)
    assert counted == (words is not None and words.startswith("WARNING"))
    assert (words or "") in said
    acted = [row["epoch"] for row in run.metrics() if row.get("rob_loss")]
    assert words is not None or changes[-1] == "train.privacy_weight=0" or acted[-1] == 3
