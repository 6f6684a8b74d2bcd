"""manifest.json of an artefact: what it says of itself, as frozen, checked values. No torch."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from splitveil.core.options import Options

FORMAT, VERSION = "splitveil-artefact", 1
EDGE, CLOUD, WEIGHTS, CONFIG = "edge.onnx", "cloud.onnx", "model.safetensors", "config.toml"
FILES = (EDGE, CLOUD, WEIGHTS, CONFIG)  # what the manifest pins; a model that Splitveil did not train has no recipe

# what both ends compare: neither when it was made nor what was measured on it
IDENTITY = {"version", "files", "input", "feature", "num_classes", "class_names", "random"}


class RandomInput(Options):
    """One random input of the edge graph: [B, *shape], drawn afresh for every transmission.

    normal: N(0, 1), float32. uniform: on [0, 1), float32. integers: each of 0 ... high - 1 alike, int64.
    """

    name: str = Field(min_length=1)
    law: Literal["normal", "uniform", "integers"]
    shape: tuple[int, ...]
    high: int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def _bounded(self) -> RandomInput:
        if (self.law == "integers") != (self.high is not None):
            raise ValueError("integers have an upper bound `high`, and nothing else has")
        if min(self.shape, default=0) < 0:
            raise ValueError("a side of a shape is negative")
        return self


class Pictures(Options):
    """What the edge graph takes: [B, *shape] float32 in [0, 1]; it normalises them itself, (x - mean)/std."""

    name: str = "pictures"
    shape: tuple[int, int, int]
    dtype: Literal["float32"] = "float32"
    low: Literal[0] = 0
    high: Literal[1] = 1
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()


class Feature(Options):
    """What is sent: [B, *shape] float32."""

    name: str = "feature"
    shape: tuple[int, ...] = Field(min_length=1)
    dtype: Literal["float32"] = "float32"


class Defence(Options):
    """One defence of the chain, in the order in which they act."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)


class Scores(Options):
    """Mean scores over the attacked pictures, on images in [0, 1]."""

    mse: float
    ssim: float
    psnr: float


class AuditDigest(Options):
    """What the audit of the run found; the whole of it is in the run's audit.json."""

    tier: str
    departures: list[str] = Field(default_factory=list, description="where the audit was not what its tier runs")
    mode: str
    num_images: int
    worst_case: Scores | None = None  # None where no attack looked for pictures
    floors: dict[str, Scores] = Field(default_factory=dict)
    signature: str

    @property
    def named(self) -> str:
        """The tier, and whether the audit was something else than the tier's."""
        return f"{self.tier}, altered" if self.departures else self.tier


class Checks(Options):
    """What the exporter measured before it wrote anything: the ONNX halves against torch, on test pictures."""

    pictures: int = Field(ge=1, description="compared with torch, with equal random inputs")
    feature_difference: float = Field(ge=0, description="largest |ONNX - torch| of a value that is sent")
    beyond_tolerance: float = Field(ge=0, le=1, description="share of these values that rounding does not explain")
    logit_difference: float = Field(ge=0, description="largest |ONNX - torch| of a logit, for equal features")
    same_label: float = Field(ge=0, le=1, description="share of pictures with the same label through ONNX and torch")
    accuracy: float = Field(ge=0, le=1, description="of the two ONNX halves with secure draws")
    accuracy_pictures: int = Field(ge=1, description="test pictures in that accuracy")


class Manifest(Options):
    """manifest.json."""

    format: Literal["splitveil-artefact"] = "splitveil-artefact"
    version: Literal[1] = 1
    splitveil: str
    created: str = ""
    signature: str = Field(
        description="of the run: pins configuration, seed, data and versions; or names another model"
    )
    seed: int | None = Field(None, description="of the run")
    data: dict[str, str] = Field(default_factory=dict, description="name, protocol and checksum of the pictures")
    model: str
    cut: int | None = None
    surrogate: str | None = None
    classifier: Literal["cloud", "attention"] = "cloud"
    defences: tuple[Defence, ...] = ()
    input: Pictures
    feature: Feature
    num_classes: int = Field(ge=1)
    class_names: tuple[str, ...] = ()
    random: tuple[RandomInput, ...] = ()
    accuracy: float | None = Field(None, description="test accuracy of the run, from its result.json")
    audit: AuditDigest | None = None
    checks: Checks | None = None
    opset: int = Field(ge=1)
    files: dict[str, str] = Field(description="SHA-256 of every file")

    @field_validator("files")
    @classmethod
    def _the_known_files(cls, files: dict[str, str]) -> dict[str, str]:
        if not {EDGE, CLOUD} <= set(files) <= set(FILES):  # also keeps names such as ../../x out
            raise ValueError(f"it must name {EDGE}, {CLOUD}, and nothing else but {WEIGHTS} and {CONFIG}")
        return files

    @model_validator(mode="after")
    def _names_differ(self) -> Manifest:
        names = [self.input.name, *(one.name for one in self.random)]
        if len(set(names)) != len(names):
            raise ValueError("two inputs have one name")
        if self.class_names and len(self.class_names) != self.num_classes:
            raise ValueError(f"{len(self.class_names)} names for {self.num_classes} classes")
        return self

    def class_name(self, label: int) -> str:
        """The name of a class, or its number where it has none."""
        return self.class_names[label] if label < len(self.class_names) else str(label)

    def identity(self) -> bytes:
        """SHA-256 of what determines the answers: the files, the inputs and outputs, the random inputs.

        Two exports of one run have the same, though they were made and measured at other times.
        """
        tree = self.model_dump(mode="json", include=IDENTITY)
        return hashlib.sha256(json.dumps(tree, sort_keys=True, separators=(",", ":")).encode()).digest()

    def promise(self) -> str:
        """What the artefact promises: one clause without a full stop, for the line that a server prints.

        The numbers are those of the audited run; they hold for what is served because the exporter checked that it is
        the same, and for one transmission of a picture unless the audit averaged several.
        """
        return self._found() + ("" if self.defended else f"; it has {self.undefended}")

    def _found(self) -> str:
        useful = "" if self.accuracy is None else f"accuracy {self.accuracy:.1%}"
        audit = self.audit
        if audit is None or audit.worst_case is None:
            return f"{useful or 'nothing'}; what it leaks was never audited"
        leaked = f"worst-case MSE {audit.worst_case.mse:.4f}, SSIM {audit.worst_case.ssim:.2f} ({audit.named} audit)"
        floor = audit.floors.get("mean_image")
        guess = "" if floor is None else f", where guessing gives MSE {floor.mse:.4f}"
        return ", ".join(part for part in (useful, leaked) if part) + guess

    @property
    def defended(self) -> bool:
        """Whether a defence acts on what is sent, or a surrogate took part in the training."""
        return bool(self.defences) or self.surrogate not in (None, "none")

    @property
    def undefended(self) -> str:
        """What it has where it is not `defended`: a model of somebody's own may draw noise in its own code."""
        if not self.random:
            return "no defences"
        inputs = "1 random input" if len(self.random) == 1 else f"{len(self.random)} random inputs"
        return f"no defence of Splitveil's; the graph draws {inputs}"

    def to_json(self) -> str:
        """The text of manifest.json."""
        return json.dumps(self.model_dump(mode="json"), indent=2, allow_nan=False) + "\n"
