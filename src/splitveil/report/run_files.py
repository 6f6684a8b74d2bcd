"""One run folder, read as far as it can be read. Problems become notes; nothing here raises on bad content."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from splitveil.core.pins import other_pictures, other_settings, other_weights
from splitveil.core.run_folder import true_status
from splitveil.experiments.loose import items, number, read_rows, read_table, shut, table, text
from splitveil.experiments.pinned import changed_audit, other_accuracy
from splitveil.experiments.training_warnings import training_warnings
from splitveil.report.audit_file import Audit, parse_audit
from splitveil.report.explain_file import FILE, read_explained
from splitveil.report.gallery_file import class_names, parse_gallery
from splitveil.report.markup import Phrase, phrase, told
from splitveil.report.run import Run

OF_TRAINING = ("config.toml", "manifest.json", "result.json", "metrics.jsonl")  # none of it: not trained by us


class _Folder:
    """The files of one folder; what is missing or damaged is noted when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notes: list[Phrase] = []
        self.damage: list[Phrase] = []
        # an audit of something that was not trained by us: what training would have written is not missed
        self.foreign = self.has("audit/audit.json") and not any((path / name).exists() for name in OF_TRAINING)

    def has(self, name: str) -> bool:
        path = self.path / name
        return shut(path.parent) is None and path.is_file()

    def table(self, name: str, absent: str | None = None) -> dict[str, Any]:
        tree, problem = read_table(self.path / name)
        self._note(name, problem, absent)
        return tree

    def rows(self, name: str) -> tuple[list[dict[str, Any]], int]:
        rows, bad, problem = read_rows(self.path / name)
        self._note(name, problem, "note.no_file")
        if bad:
            self.damage.append(phrase("note.bad_lines", file=name, count=bad))
        return rows, bad

    def _note(self, name: str, problem: str | None, absent: str | None) -> None:
        if problem == "missing":
            if absent and not self.foreign:
                self.notes.append(phrase(absent, file=name))
        elif problem:
            self.damage.append(phrase("note.damaged", file=name, reason=problem))


def read_run(path: Path) -> Run:
    """Read one folder; every file may be missing, damaged or foreign."""
    files = _Folder(path)
    failed = files.has("error.json")  # a sweep's cell: what it lacks will not come by itself
    config = files.table("config.toml", "note.no_config")
    manifest = files.table("manifest.json", "note.no_file")
    result = files.table("result.json", "note.failed_cell" if failed else "note.no_result")
    cell = files.table("cell.json")
    error = (text(files.table("error.json").get("error")) or "?") if (path / "error.json").exists() else None
    if error is not None:
        files.notes.append(phrase("note.cell_failed", reason=error.removesuffix(".")))
    rows, bad = files.rows("metrics.jsonl")
    audit_tree, gallery = {}, {}
    if reason := shut(path / "audit"):
        files.damage.append(phrase("note.shut", file="audit", reason=reason))
    else:
        audit_tree = files.table("audit/audit.json", "note.failed_cell" if failed else "note.no_audit")
        gallery = files.table("audit/gallery.json")
    audit = parse_audit(audit_tree)
    changed = _changed(path, config, result, None if bad else rows, audit_tree)
    about = audit.about if files.foreign else {}
    if files.foreign:
        kind = "endpoint" if audit.auditors_accuracy else about.get("kind")
        known = kind in ("artefact", "endpoint", "run")
        files.notes.append(phrase(f"note.audit_of_{kind}" if known else "note.audit_only"))
        config = table(about.get("config"))
        manifest = {"seed": about.get("seed"), "data": about.get("data")} if about else {}
    if counted := training_warnings(result):
        files.notes.append(
            phrase("note.counted", text=", ".join(f"{event} ({times})" for event, times in counted.items()))
        )
    if audit_tree:
        if not (path / "audit/card.json").exists():
            files.notes.append(phrase("note.no_card", file="audit/card.json"))
        files.notes += _said_by(audit)
    status = true_status(path, text(manifest.get("status")))
    if status:
        manifest = {**manifest, "status": status}
    if status and status != "finished":
        files.notes.append(phrase("note.status", status=status))
    damage = [*files.damage, *changed]
    return Run(
        path=path,
        name=path.resolve().name,
        config=config,
        manifest=manifest,
        result=result,
        sweep_method=text(cell.get("method")),
        changed=bool(changed),
        audit_only=files.foreign and bool(audit_tree),
        unfinished=not (path / "result.json").exists() and status != "finished" and not audit.attacked,
        error=error,
        metrics=tuple(rows),
        audit=audit,
        about=about,
        shots=tuple(parse_gallery(gallery)),
        notes=(*damage, *files.notes),
        damage=tuple(damage),
    )


def _changed(
    path: Path, config: dict[str, Any], result: dict[str, Any], rows: list[dict[str, Any]] | None, audit: dict[str, Any]
) -> list[Phrase]:
    """Files that are not any more what the others were made with; `rows` of metrics.jsonl, None if some are damaged."""
    found = []
    if other_settings(path / "config.toml", result.get("signature"), audit.get("signature")):
        found.append(phrase("note.other_config", file="config.toml"))
    if other_weights(path / "checkpoints/model.safetensors", result):
        found.append(phrase("note.other_weights", file="checkpoints/model.safetensors", other="result.json"))
    if other_pictures(result.get("signature"), audit.get("signature")):
        found.append(phrase("note.other_pictures", file="audit/audit.json"))
    if rows is not None and other_accuracy(result, rows, config):
        found.append(phrase("note.other_accuracy", file="result.json", other="metrics.jsonl"))
    if audit and changed_audit(audit, path / "audit/card.json"):
        found.append(phrase("note.changed_audit", file="audit/audit.json"))
    return found


def _said_by(audit: Audit) -> list[Phrase]:
    """What an audit itself says beside its numbers."""
    notes = [] if audit.attacked else [phrase("note.no_scores", file="audit/audit.json")]
    notes += [phrase("note.attack_failed", name=name, reason=reason) for name, reason in audit.failures.items()]
    for name, reason in audit.skipped.items():
        notes.append(phrase("note.attack_left_out", name=name, reason=_without_stop(told(reason))))
    if audit.warnings:
        said = [_without_stop(told(warning)) for warning in audit.warnings]
        everything = Phrase("; ".join(one.en for one in said), "；".join(one.zh for one in said))  # noqa: RUF001 - meant
        notes.append(phrase("note.audit_says", text=everything))
    return notes


def with_details(run: Run) -> Run:
    """The same run with what only the page needs: what explains its surrogate, and audits in other modes."""
    gallery, _ = read_table(run.path / "audit/gallery.json")
    surrogate = text(table(run.config.get("surrogate")).get("name")) or text(run.result.get("surrogate"))
    explained, problem = read_explained(run.path, surrogate, feature_shape(run.result), class_names(gallery))
    damage = [phrase("note.damaged", file=FILE, reason=problem)] if problem else []
    others: dict[str, Audit] = {}
    for place in sorted(run.path.glob("audit-*")):
        if reason := shut(place):
            damage.append(phrase("note.shut", file=place.name, reason=reason))
    for path in sorted(run.path.glob("audit-*/audit.json")):
        tree, problem = read_table(path)
        if problem:
            damage.append(phrase("note.damaged", file=f"{path.parent.name}/{path.name}", reason=problem))
        elif (audit := parse_audit(tree)).leak.known:
            others[path.parent.name.removeprefix("audit-")] = audit
            if changed_audit(tree, path.parent / "card.json"):
                damage.append(phrase("note.changed_audit", file=f"{path.parent.name}/{path.name}"))
    notes = [phrase("note.explain_says", text=note) for note in explained.notes]
    return replace(
        run,
        explained=explained,
        other_audits=others,
        notes=(*damage, *run.notes, *notes),
        damage=(*run.damage, *damage),
    )


def _without_stop(sentence: Phrase) -> Phrase:
    """Notes are strung together with semicolons."""
    return Phrase(sentence.en.removesuffix("."), sentence.zh.removesuffix("。"))


def feature_shape(result: Mapping[str, Any]) -> list[int]:
    """Shape of what the device sends, for maps of its places; [] when the result does not say it."""
    sizes = [number(item) for item in items(table(result.get("cost")).get("feature_shape"))]
    return [int(size) for size in sizes if size is not None and 0 < size < 1e6]
