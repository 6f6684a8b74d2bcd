"""Made-up run folders in the layout of DESIGN 2. The numbers mean nothing; they only have to agree with each other."""

from __future__ import annotations

import hashlib
import io
import json
import random
from collections.abc import Callable
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, ClassVar

import pytest
from PIL import Image

from splitveil.core.toml import dump_toml
from splitveil.report import build_report

CLASSES = ("T-shirt", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")


def noise_picture(path: Path, seed: int, side: int = 28, mode: str = "L") -> None:
    """A small picture of noise: enough to be a real PNG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_png(seed, side, mode))


@cache
def _png(seed: int, side: int, mode: str) -> bytes:
    channels = 3 if mode == "RGB" else 1
    content = io.BytesIO()
    Image.frombytes(mode, (side, side), random.Random(seed).randbytes(side * side * channels)).save(content, "PNG")
    return content.getvalue()


def make_run(
    folder: Path,
    *,
    surrogate: str | None = "gmm",
    weight: float = 16.0,
    sigma: float = 0.025,
    seed: int = 125,
    accuracy: float = 0.871,
    mse: float = 0.0248,
    ssim: float = 0.412,
    epochs: int = 12,
    images: int = 8,
    side: int = 28,
    mode: str = "L",
    attacks: tuple[str, ...] = ("decoder", "optimize"),
    picture: Callable[[Path, str, int, int], None] | None = None,
) -> Path:
    """Write one complete run folder and return it."""
    chance = random.Random(f"{folder.name}/{seed}/{weight}")
    folder.mkdir(parents=True)
    config: dict[str, Any] = {
        "seed": seed,
        "data": {"name": "fashion-mini", "protocol": "disjoint", "augment": True},
        "model": {"name": "tiny", "cut": 2, "output": "sigmoid"},
        "defence": {"bottleneck": {"channels": 8}, **({"noise": {"sigma": sigma}} if sigma else {})},
        "train": {"epochs": epochs, "lr": 0.05, "privacy_weight": weight, "compose": "single"},
        "audit": {"tier": "smoke", "mode": "training_time"},
    }
    if surrogate:
        config["surrogate"] = {"name": surrogate, "mode": "corrected", "loss_scale": 1.0}
    (folder / "config.toml").write_text(dump_toml(config), encoding="utf-8")
    _json(folder / "manifest.json", {
        "versions": {"python": "3.12.3", "splitveil": "0.1.0", "torch": "2.13.0"},
        "hardware": {"cores": 2, "gpu": None},
        "revision": "0123456789ab",
        "seed": seed,
        "data": {"name": "fashion-mini", "checksum": "91bd03aa"},
        "started": "2026-01-02T03:04:05+00:00",
        "ended": "2026-01-02T03:05:05+00:00",
        "status": "finished",
    })  # fmt: skip
    with (folder / "metrics.jsonl").open("w", encoding="utf-8") as file:
        for epoch in range(1, epochs + 1):
            progress = epoch / epochs
            file.write(json.dumps({
                "epoch": epoch,
                "task_loss": 1.9 * (1 - progress) + 0.35 + 0.05 * chance.random(),
                "rob_loss": 0.8 * (1 - 0.7 * progress) if surrogate else 0.0,
                "intra_mse": 0.04 * (1 - 0.6 * progress) + 0.002 * chance.random(),
                "intra_mse_raw": 0.05,
                "accuracy": accuracy * (0.6 + 0.4 * progress**0.4),
                "lr": 0.05 * (1 - 0.9 * progress),
                "effective_weight": weight * 0.02 * progress,
                "gate_mean": 0.2 + 0.5 * progress,
                "seconds": 2.5,
            }) + "\n")  # fmt: skip
    digest = hashlib.sha256((folder / "config.toml").read_bytes()).hexdigest()[:10]
    signature = f"splitveil:0.1.0|config:{digest}|seed:{seed}|torch:2.13.0"
    _json(folder / "result.json", {
        "accuracy_late": accuracy,
        "accuracy_last": accuracy - 0.001,
        "rob_loss": 0.24,
        "intra_mse": 0.016,
        "effective_weight": weight * 0.02 if surrogate else 0.0,
        "surrogate": surrogate or "none",
        "defences": ["bottleneck", "noise"],
        "seconds": 30.5,
        "signature": signature,
        "cost": {
            "edge_params": 1_312, "cloud_params": 122_570, "edge_macs": 921_984, "cloud_macs": 8_847_360,
            "bytes_per_image": 1_568, "feature_shape": [8, 7, 7],
        },
    })  # fmt: skip
    _audit(folder, chance, mse, ssim, images, side, mode, attacks, signature, picture)
    return folder


def _audit(
    folder: Path, chance: random.Random, mse: float, ssim: float, images: int, side: int, mode: str,
    attacks: tuple[str, ...], signature: str, picture: Callable[[Path, str, int, int], None] | None,
) -> None:  # fmt: skip
    scores = {name: _scores(mse * (1.02 + 0.3 * rank), ssim - 0.01 - 0.08 * rank) for rank, name in enumerate(attacks)}
    _json(folder / "audit" / "audit.json", {
        "tier": "smoke", "mode": "training_time", "protocol": "disjoint", "num_images": 2000,
        "floors": {"mean_image": _scores(0.087, 0.153), "class_mean": _scores(0.052, 0.31)},
        "attacks": {
            name: entry | {
                "seconds": 21.0,
                "threat_model": ["features", "auxiliary", "a crystal ball"],
                "summary": "A summary of the attack.",
                "curve": [[n, entry["mse"] * (1 + 2 / n)] for n in range(1, 11)],
                "recon_acc": 0.63,
            }
            for name, entry in scores.items()
        },
        "worst_case": _scores(mse, ssim) | {"winners": {name: 1 / len(attacks) for name in attacks}},
        "per_class": {
            name: _scores(mse * chance.uniform(0.6, 1.5), min(0.99, ssim * chance.uniform(0.7, 1.2)))
            for name in CLASSES
        },
        "worst_decile": _scores(mse * 0.4, min(0.99, ssim + 0.2)),
        "bound": {
            "available": True, "sigma": 0.1, "alarm": [],
            "fisher": {"holds_for": "unbiased attackers only; trained decoders are biased", "dfil": 40.0,
                       "repeats": {"1": {"mse": mse * 0.2}}, "below": []},
        },
        "signature": signature + "|audit:smoke",
    })  # fmt: skip
    entries = []
    for position in range(images):
        index = 12 + 7 * position
        label = position % len(CLASSES)
        for attack in ("original", *attacks):
            path = folder / "audit" / attack / f"{index:05d}.png"
            if picture:
                picture(path, attack, index, label)
            else:
                noise_picture(path, hash((attack == "original" or folder.name, attack, index)) & 0xFFFF, side, mode)
        per_attack = {
            name: _scores(mse * chance.uniform(0.5, 1.6), min(0.99, ssim * chance.uniform(0.6, 1.4)))
            for name in attacks
        }
        best = min(per_attack, key=lambda name: per_attack[name]["mse"])
        entries.append({
            "index": index, "label": label, "class_name": CLASSES[label], "attacks": per_attack,
            "worst": {"attack": best, **per_attack[best]},
        })  # fmt: skip
    _json(folder / "audit" / "gallery.json", {"images": entries})


def _scores(mse: float, ssim: float) -> dict[str, Any]:
    return {
        "mse": mse,
        "ssim": ssim,
        "psnr": 15 + ssim * 10,
        "mse_ci95": [mse * 0.97, mse * 1.03],
        "ssim_ci95": [ssim - 0.006, ssim + 0.006],
    }


def _json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


@pytest.fixture
def write_run() -> Callable[..., Path]:
    return make_run


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    """What `splitveil demo` leaves behind: an undefended and a defended run."""
    make_run(tmp_path / "demo" / "undefended", surrogate=None, sigma=0.0, accuracy=0.889, mse=0.0125, ssim=0.868)
    make_run(tmp_path / "demo" / "defended")
    return tmp_path / "demo"


class Page(HTMLParser):
    """A parsed page: its elements, the text in each language, and whatever is not well formed."""

    VOID: ClassVar[set[str]] = {"meta", "img", "br", "input", "link", "hr"}

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.source = source
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[tuple[tuple[tuple[str, dict[str, str]], ...], str]] = []
        self.faults: list[str] = []
        self._open: list[tuple[str, dict[str, str]]] = []
        self.feed(source)
        self.close()
        self.faults += [f"<{name}> is never closed" for name, _ in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        if len(set(names)) != len(names):
            self.faults.append(f"<{tag}> repeats an attribute")
        entry = (tag, {name: value or "" for name, value in attrs})
        self.elements.append(entry)
        if tag not in self.VOID:
            self._open.append(entry)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open[-1][0] != tag:
            self.faults.append(f"</{tag}> closes <{self._open[-1][0] if self._open else 'nothing'}>")
        else:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        self.texts.append((tuple(self._open), data))

    def text(self, css: str = "", lang: str = "en") -> str:
        """What a reader of `lang` sees inside the elements with this class."""
        other = "zh" if lang == "en" else "en"
        return " ".join("".join(
            data for parents, data in self.texts
            if (not css or any(css in attrs.get("class", "").split() for _, attrs in parents))
            and not any(name in {"script", "style"} for name, _ in parents)
            and not any(attrs.get("lang") == other for name, attrs in parents if name != "html")
        ).split())  # fmt: skip

    def named(self, tag: str) -> list[dict[str, str]]:
        return [attrs for name, attrs in self.elements if name == tag]


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., Page]:
    """Build a report and parse it."""

    def make(*paths: Path, **options: Any) -> Page:
        out = build_report(list(paths), tmp_path / "out" / "report.html", **options)
        return Page(out.read_text(encoding="utf-8"))

    return make
