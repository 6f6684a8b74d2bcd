"""The run folder: the only thing that passes from training to audit to report (layout in DESIGN 2).

NAME/config.toml  manifest.json  metrics.jsonl  result.json  checkpoints/  audit/  audit-MODE/

`audit/` holds the audit in the recipe's own mode; an audit in another mode stands beside it, in `audit-MODE/`.
Either keeps the audits before it, where they had other settings, in `earlier/1`, `earlier/2`, ..., which nobody reads.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from splitveil.core.config import Config, load_config
from splitveil.core.errors import NoPicturesError, NotARunError, RunFolderError, UnknownNameError
from splitveil.core.files import append_line, write_atomic, write_json
from splitveil.core.locks import has_writer
from splitveil.core.nearest_folder import folder_hint
from splitveil.core.shell import command


@dataclass(frozen=True)
class RunFolder:
    """Typed access to one run folder. Reading never creates anything. It is a path itself, as `open` takes it."""

    path: Path

    def __fspath__(self) -> str:
        return str(self.path)

    @classmethod
    def open(cls, path: str | PathLike[str]) -> RunFolder:
        """An existing run folder; anything else is an error that says what is missing."""
        path = Path(path)
        folder = cls(path)
        if path.is_file():
            raise NotARunError(f"{path} is a file, but a run is a folder.", f"Try its folder: {path.parent}")
        if not folder.path.is_dir():
            hint = folder_hint(path, "Make one with: splitveil train RECIPE --out DIR")
            raise NotARunError(f"There is no run folder {path}.", hint)
        if (folder.path / "edge.onnx").is_file() or (folder.path / "cloud.onnx").is_file():
            raise NotARunError(f"{path} is an exported artefact, not a run.", "Give the run that it was exported from.")
        if not (folder.path / "config.toml").is_file():
            trained = any((folder.path / name).exists() for name in ("manifest.json", "metrics.jsonl", "result.json"))
            if (folder.audit / "audit.json").is_file() and not trained:
                raise NotARunError(
                    f"{path} holds only an audit of a model that was not trained here.",
                    f"Show it with: {command('report', path)}",
                )
            below = sorted([*folder.path.glob("*/config.toml"), *folder.path.glob("cells/*/config.toml")])
            hint = (
                f"Give one run, for example {below[0].parent}" if below else "Give a folder that splitveil train made."
            )
            raise NotARunError(f"{path} is not a run folder: it has no config.toml.", hint)
        return folder

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def weights(self) -> Path:
        """The file of the trained weights; where there is none, an error that says why and what to do."""
        path = self.checkpoints / "model.safetensors"
        if path.exists():
            return path
        if (self.path / "result.json").exists():
            raise RunFolderError(
                f"{self.path} was trained to its end, but its weights are not here: "
                "'splitveil sweep' leaves them out with --export and deletes them with --checkpoints none.",
                "Copy its folder checkpoints/ here, or train it again: "
                + command("train", self.path / "config.toml", "--out", "NEW_DIR"),
            )
        if self.is_training():
            raise RunFolderError(f"{self.path} is still training, in another process.", "Wait until it has finished.")
        raise RunFolderError(
            f"{self.path} has no finished model.",
            f"Finish it with: {command('train', self.path / 'config.toml', '--out', self.path, '--resume')}",
        )

    @property
    def audit(self) -> Path:
        return self.path / "audit"

    def audit_in(self, mode: str, own: str) -> Path:
        """Where the audit in one mode lies: `audit/` for the recipe's own mode, `audit-MODE/` for another."""
        return self.audit if mode == own else self.path / f"audit-{mode}"

    def config(self) -> Config:
        try:
            return load_config(self.path / "config.toml")
        except NoPicturesError as error:
            raise NoPicturesError(
                f"The pictures of {self.path} are not here: {error.message[0].lower()}{error.message[1:]}",
                "Its config.toml names that path, from the folder where it was trained: call this there, or bring the "
                "pictures to that path.",
            ) from None
        except UnknownNameError as error:
            packages = (self.read_json("manifest.json") or {}).get("plug_ins")
            if not packages:
                raise
            raise UnknownNameError(
                error.message,
                f"{self.path} was trained with plug-ins of a package ({', '.join(packages)}): install it here, if "
                "you trust its code.",
            ) from None

    def write_config(self, config: Config) -> None:
        write_atomic(self.path / "config.toml", config.to_toml())

    def read_json(self, name: str) -> dict[str, Any] | None:
        """The content of a JSON file of this folder, or None when the file is absent."""
        path = self.path / name
        try:
            tree = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise RunFolderError(f"{path} is damaged: {error}.", "Delete it and run the step again.") from None
        if not isinstance(tree, dict):
            raise RunFolderError(f"{path} is damaged: it is no table.", "Delete it and run the step again.")
        return tree

    def write_json(self, name: str, value: dict[str, Any]) -> None:
        write_json(self.path / name, value)

    def is_training(self) -> bool:
        """Whether a process is training this run right now."""
        said = (self.read_json("manifest.json") or {}).get("status")
        return true_status(self.path, said) == "running"

    def append_metrics(self, row: dict[str, Any]) -> None:
        append_line(self.path / "metrics.jsonl", json.dumps(row, allow_nan=False))

    def metrics(self) -> list[dict[str, Any]]:
        """All complete lines of metrics.jsonl; a torn or foreign line is skipped."""
        path = self.path / "metrics.jsonl"
        if not path.exists():
            return []
        rows = []
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(row, dict):
                rows.append(row)
        return rows

    def truncate_metrics(self, last_epoch: int) -> None:
        """Drop rows after `last_epoch`, and rows of no epoch: used when a run resumes from an older checkpoint."""
        rows = [row for row in self.metrics() if isinstance(e := row.get("epoch"), int | float) and e <= last_epoch]
        write_atomic(self.path / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows))


def late_accuracies(rows: list[dict[str, Any]], key: str = "test_accuracy") -> list[float]:
    """Accuracies on the test part in the last eighth of the epochs; `accuracy_late` is their mean (DESIGN 2).

    With the key `accuracy`: those on validation pictures.
    """
    late = [row.get(key) for row in rows[-max(1, len(rows) // 8) :]]
    return [value for value in late if isinstance(value, float)]


def true_status(folder: Path, said: str | None) -> str | None:
    """The status that a run's manifest states; "stopped" in place of "running" where no process is behind it any more.

    A process that was killed outright could not correct its manifest.
    """
    return "stopped" if said == "running" and not has_writer(folder) else said


def starting_run(config: Config) -> RunFolder | None:
    """The finished run that `train.init_from` names, or None; an error where it, or its weights, are not there."""
    if config.train.init_from is None:
        return None
    folder = RunFolder.open(config.train.init_from)
    try:
        folder.weights()
    except RunFolderError as error:
        raise RunFolderError(f"train.init_from: {error.message}", error.hint) from None
    return folder
