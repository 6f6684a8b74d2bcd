"""Pictures a person looks at: originals and what each attack made of them, as PNG files beside gallery.json."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from splitveil.audit.metrics import PictureScores
from splitveil.audit.scoring import Scored
from splitveil.audit.subjects import Subjects
from splitveil.core.files import save_atomic, write_json

REGULAR = 30  # the first pictures in turn of the classes: the same in every audit of the data
LEAKS = 10  # and those the attacks came closest to
ORIGINAL = "original"


@dataclass(frozen=True)
class Gallery:
    """`tree` is gallery.json; `pictures` maps a folder name to {index in the test part: uint8 [ch, h, w]}."""

    tree: dict[str, Any]
    pictures: dict[str, dict[int, Tensor]]

    @classmethod
    def load(cls, folder: Path) -> Gallery:
        """What `save` has written (of a picture with more than three channels, the first three)."""
        tree = json.loads((folder / "gallery.json").read_text(encoding="utf-8"))
        pictures: dict[str, dict[int, Tensor]] = {ORIGINAL: {}}
        for entry in tree["images"]:
            for name in (ORIGINAL, *entry["attacks"]):
                with Image.open(folder / name / f"{entry['index']:05d}.png") as image:
                    values = torch.from_numpy(np.array(image))
                picture = values[None] if values.ndim == 2 else values.permute(2, 0, 1)
                pictures.setdefault(name, {})[entry["index"]] = picture
        return cls(tree, pictures)

    def save(self, folder: Path) -> None:
        """Write pictures first and the list last, so that a list never names a picture that is not there."""
        for name, images in self.pictures.items():
            for old in (folder / name).glob("[0-9]*.png"):
                if int(old.stem) not in images:
                    old.unlink()
            for index, image in images.items():
                draw = partial(as_image(image).save, format="PNG", optimize=True)
                save_atomic(folder / name / f"{index:05d}.png", draw)
        write_json(folder / "gallery.json", self.tree)


def select(worst: PictureScores) -> list[int]:
    """Positions of the pictures to show."""
    first = list(range(min(REGULAR, len(worst))))
    closest = [int(place) for place in worst.mse.argsort(stable=True)[:LEAKS]]
    return first + [place for place in closest if place not in set(first)]


def gallery(
    subjects: Subjects, scored: Scored, worst: PictureScores, winners: list[str], class_names: list[str]
) -> Gallery:
    """Put the pictures to show together with their scores."""
    images = []
    pictures: dict[str, dict[int, Tensor]] = {ORIGINAL: {}, **{name: {} for name in scored.answers}}
    for place in select(worst):
        number, label = int(subjects.index[place]), int(subjects.targets.labels[place])
        pictures[ORIGINAL][number] = subjects.targets.images[place].cpu()
        attacks = {}
        for name, score in scored.shown.items():
            if place < len(score):
                attacks[name] = {
                    "mse": float(score.mse[place]),
                    "ssim": float(score.ssim[place]),
                    "psnr": float(score.psnr[place]),
                }
                pictures[name][number] = to_uint8(scored.answers[name][place])
        images.append(
            {
                "index": number,
                "label": label,
                "class_name": class_names[place],
                "attacks": attacks,
                "worst": {
                    "attack": winners[place],
                    "mse": float(worst.mse[place]),
                    "ssim": float(worst.ssim[place]),
                },
            }
        )
    return Gallery({"images": images}, pictures)


def to_uint8(picture: Tensor) -> Tensor:
    """Floats in [0, 1] as the nearest of 256 levels, on the CPU."""
    return (picture.float().clamp(0, 1) * 255).round().to(torch.uint8).cpu()


def as_image(picture: Tensor) -> Image.Image:
    """A picture [ch, h, w] uint8, grey or in colour, for Pillow."""
    values = picture.permute(1, 2, 0).contiguous().cpu().numpy()
    return Image.fromarray(values[:, :, 0] if values.shape[2] == 1 else values[:, :, :3])
