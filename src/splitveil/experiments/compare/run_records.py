"""One run folder as records: one per audit. What cannot be used is said in one sentence and left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from splitveil.core.pins import other_pictures, other_settings, other_weights
from splitveil.core.run_folder import true_status
from splitveil.experiments.compare.audit_numbers import extra_of, findings_of, scores_of
from splitveil.experiments.compare.labels import comparable
from splitveil.experiments.compare.measures import WORST
from splitveil.experiments.compare.record import NOT_ATTACKED, Record, Setting, keep
from splitveil.experiments.loose import number, read_rows, read_table, shut, table, text
from splitveil.experiments.pinned import changed_audit, other_accuracy
from splitveil.experiments.training_warnings import training_warnings

AUDITS = ("audit", "audit-*")  # a second mode of attack has a folder of its own


def read_records(folder: Path, label: str | None = None) -> tuple[list[Record], list[str]]:
    """The records of a run and the sentences about what is wrong with it."""
    name = folder.resolve().name
    files, problem = _read_run(folder)
    if problem:
        return [], [f"{name} {problem}"]
    config, result, manifest = files
    shared = {"name": name, "label": label} | _of_the_run(config, result, manifest)
    accuracy, code = shared["accuracy"], _code(table(manifest.get("versions")), manifest)
    notes = [] if accuracy is not None else [f"{name} has no usable accuracy in result.json; only its attacks count."]
    for place in sorted(found for pattern in AUDITS for found in folder.glob(pattern)):
        if reason := shut(place):
            notes.append(f"{name}/{place.name} cannot be read ({reason}) and is left out: change its permissions.")
    records = []
    for path in _audits(folder):
        where = f"{name}/{path.parent.name}/audit.json"
        tree, problem = _read_audit(path, folder / "config.toml", result)
        if problem:
            notes.append(f"{where} {problem}")
            continue
        scores, intervals = scores_of(tree)
        findings, spans = findings_of(tree)
        extra, taken = extra_of(tree)
        notes += [f"{where}: '{one}' is a measure of ours; the audit's own of that name is left out." for one in taken]
        pictures = any("mse" in found for found in scores.values())
        if not pictures and not findings:
            notes.append(f"{where} holds no usable MSE; it is left out.")
            continue
        if pictures and WORST not in scores:
            notes.append(f"{where} has no usable worst case; only its single attacks count.")
        failures = tuple(sorted(table(tree.get("failures"))))
        notes += [f"{where}: the attack '{attack}' failed, so the worst case is over fewer." for attack in failures]
        records.append(
            Record(
                setting=_setting(config, tree, code),
                scores=scores if pictures else {},
                findings=findings,
                extra=extra,
                intervals=intervals | spans,
                floors={n: keep(v) for n, e in table(tree.get("floors")).items() if (v := number(table(e).get("mse")))},
                signature=text(tree.get("signature")),
                failures=failures,
                seconds=_seconds(result, tree),
                **shared,
            )
        )
    if not records and accuracy is not None:
        unattacked = Setting(_data(config), _protocol(config), NOT_ATTACKED, "", "", "", code)
        spent = _seconds(result)
        records.append(Record(setting=unattacked, signature=text(result.get("signature")), seconds=spent, **shared))
    return records, notes


def without_card(folder: Path) -> bool:
    """Whether an audit of this run has no card.json beside it, so that nobody can tell whether it was changed."""
    return any(not path.with_name("card.json").exists() for path in _audits(folder))


def _read_run(folder: Path) -> tuple[list[dict[str, Any]], str | None]:
    """Settings, result and manifest of a run, or how the sentence goes on that says why it cannot be used."""
    if not any((folder / file).exists() for file in ("config.toml", "result.json")) and _audits(folder):
        return [], f"is left out: {_audit_alone(folder)}"
    files = []
    for file in ("config.toml", "result.json", "manifest.json"):
        tree, problem = read_table(folder / file)
        if problem == "missing" and file == "result.json":
            return [], f"has no result.json (status: {_status(folder)}); it is left out."
        if problem and file != "manifest.json":
            why = "is missing" if problem == "missing" else f"cannot be read ({problem})"
            return [], f"is left out: its {file} {why}."
        files.append(tree)
    config, result, _ = files
    if other_settings(folder / "config.toml", result.get("signature")):
        return [], "is left out: its config.toml is not the one that its signature pins."
    if other_weights(folder / "checkpoints" / "model.safetensors", result):
        return [], "is left out: its weights are not those that its result.json pins."
    rows, bad, _ = read_rows(folder / "metrics.jsonl")
    if not bad and other_accuracy(result, rows, config):
        return [], "is left out: its result.json states another accuracy than its metrics.jsonl."
    return files, None


def _read_audit(path: Path, config: Path, result: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
    """An audit.json, or how the sentence goes on that says why it is no audit of this run."""
    tree, problem = read_table(path)
    if problem:
        return {}, f"cannot be read ({problem}); it is left out."
    if changed_audit(tree, path.with_name("card.json")):
        return {}, "does not say what its card.json says: it was changed after the audit and is left out."
    if other_settings(config, tree.get("signature")):
        return {}, "is about other settings than those in config.toml; it is left out."
    if other_pictures(result.get("signature"), tree.get("signature")):
        return {}, "is about other pictures than those of the training; it is left out."
    return tree, None


def _of_the_run(config: dict[str, Any], result: dict[str, Any], manifest: dict[str, Any]) -> dict[str, Any]:
    """What the records of all audits of a run share."""
    seed = number(config.get("seed", manifest.get("seed")))
    versions = table(manifest.get("versions"))
    return {
        "settings": comparable(config),
        "seed": None if seed is None else int(seed),
        "accuracy": _first(result, "accuracy_late", "accuracy_last"),
        "kept": _first(result, "accuracy_kept", "accuracy_last"),
        "checksum": (text(table(manifest.get("data")).get("checksum")) or "")[:12] or None,
        "hardware": _hardware(table(manifest.get("hardware"))),
        "torch": (text(versions.get("torch")) or "").split("+")[0] or None,
        "ended": text(manifest.get("ended")) or "",
        "warnings": training_warnings(result),
        "idle": True if result.get("works") is False else None,
        "plug_ins": {package: c for package, item in table(manifest.get("plug_ins")).items() if (c := text(item))},
    }


def _audits(folder: Path) -> list[Path]:
    return sorted({found for pattern in AUDITS for found in folder.glob(f"{pattern}/audit.json")})


def _audit_alone(folder: Path) -> str:
    """Why the audit of an artefact, of an endpoint or of a model of one's own is no run that can be compared."""
    shown = "splitveil report shows it."
    tree, _ = read_table(_audits(folder)[0])
    if tree.get("accuracy_of") == "auditor":
        return (
            "it is the audit of an endpoint, which does not tell its settings, and its accuracy is that of a "
            f"classifier of the auditor's own on what it sends; {shown}"
        )
    return f"only an audit is here, and its accuracy is that on the pictures under attack; {shown}"


def _status(folder: Path) -> str:
    manifest, _ = read_table(folder / "manifest.json")
    return true_status(folder, text(manifest.get("status"))) or "unknown"


def _first(tree: dict[str, Any], *keys: str) -> float | None:
    return next((keep(value) for key in keys if (value := number(tree.get(key))) is not None), None)


def _seconds(*trees: dict[str, Any]) -> float | None:
    known = [value for tree in trees if (value := number(tree.get("seconds"))) is not None]
    return keep(sum(known)) if known else None


def _setting(config: dict[str, Any], audit: dict[str, Any], code: str) -> Setting:
    own = (text(audit.get("signature")) or "").rpartition("|audit|")[2]  # before it stands the signature of the run
    pins = dict(part.partition(":")[::2] for part in own.split("|"))
    plug_ins = f" with plug-ins {pins['plug_ins']}" if pins.get("plug_ins") else ""
    ran = [*table(audit.get("attacks")), *table(audit.get("inference"))]
    images = number(audit.get("num_images"))
    return Setting(
        data=_data(config),
        protocol=text(audit.get("protocol")) or _protocol(config),
        mode=text(audit.get("mode")) or "unknown",
        tier=text(audit.get("tier")) or "unknown",
        images="unknown" if images is None else f"{images:.0f}",
        # Audits that do not pin their attacks are told apart by which ones they ran.
        attacks=(pins.get("attacks") or "+".join(sorted(ran))) + plug_ins,
        code=code,
    )


def _data(config: dict[str, Any]) -> str:
    data = table(comparable({"data": config.get("data")}))
    name = text(data.get("data.name")) or "unknown data"
    size = number(data.get("data.image_size"))
    limit = number(data.get("data.limit"))
    return name + (f" at {size:.0f} px" if size else "") + (f" ({limit:.0f} training pictures)" if limit else "")


def _protocol(config: dict[str, Any]) -> str:
    return text(table(config.get("data")).get("protocol")) or "unknown"


def _code(versions: dict[str, Any], manifest: dict[str, Any]) -> str:
    """Version and checksum of the code that bears on results; the revision where a manifest has no checksum."""
    version = text(versions.get("splitveil")) or "unknown"
    exact = text(manifest.get("code")) or text(manifest.get("revision"))
    return f"{version} ({exact})" if exact else version


def _hardware(hardware: dict[str, Any]) -> str | None:
    gpu, processor, cores = (text(hardware.get(key)) for key in ("gpu", "processor", "cores"))
    return gpu or (f"{processor}, {cores} cores" if processor and cores else processor)
