"""The folder of an audit: one writer at a time, and known to be writable before anything is attacked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from safetensors import SafetensorError
from tests import worlds

import splitveil as sv
from splitveil.audit.subjects import AuditData
from splitveil.core.errors import RunFolderError, UsageError
from splitveil.core.locks import only_writer

DATA = AuditData(aux=worlds.pictures(40, seed=1), test=worlds.pictures(12, seed=2))


def never(*_: object, **__: object) -> None:
    raise AssertionError("an attack ran")


def audit(out: Path) -> None:
    sv.audit(worlds.identity(), DATA, attacks=["linear"], check_sanity=False, out=out)


def test_a_second_audit_of_the_folder_is_refused_before_it_attacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def meanwhile(*_: object, **__: object) -> None:
        with pytest.raises(UsageError, match=r"Another audit is writing to .*Wait for it") as refused:
            audit(tmp_path)
        seen.append(str(refused.value))
        raise KeyboardInterrupt

    monkeypatch.setattr("splitveil.attacks.linear.LinearAttack.run", meanwhile)
    with pytest.raises(KeyboardInterrupt):
        audit(tmp_path)
    assert len(seen) == 1
    assert "--out" not in seen[0]
    monkeypatch.undo()
    audit(tmp_path)  # the lock is given back
    assert (tmp_path / "audit.json").exists()
    with only_writer(tmp_path):
        pass


@pytest.mark.parametrize("read_only", [False, True])
def test_a_folder_that_cannot_be_written_is_refused_before_any_attack(
    read_only: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("splitveil.attacks.linear.LinearAttack.run", never)
    place = tmp_path / "place"
    if read_only:
        if os.geteuid() == 0:
            monkeypatch.setattr("tempfile.TemporaryFile", refuse)  # nothing is read-only for root
        place.mkdir()
        place.chmod(0o555)
    else:
        place.write_text("a file")
    with pytest.raises(UsageError, match=r"cannot be written \(.*\)\. .*copy"):
        audit(place / "audit" if not read_only else place)


def refuse(*_: object, **__: object) -> None:
    raise PermissionError(13, "Permission denied")


def test_a_full_disk_ends_the_audit_and_is_no_fault_of_the_attack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each attack would run to its end and count as broken: an audit without a verdict, for want of space."""

    def full(*_: object, **__: object) -> None:
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("splitveil.audit.partial.save_file", full)
    with pytest.raises(RunFolderError, match=r"cannot be written below .* \(I/O error: No space left") as caught:
        audit(tmp_path / "full")
    assert "same command again" in caught.value.hint
    monkeypatch.undo()
    audit(tmp_path / "full")  # once there is room
    assert (tmp_path / "full" / "audit.json").exists()
