"""The sections of a config that are the same for every run: data, model, train, audit."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from splitveil.core.catalogue import ATTACKS, MEASURES
from splitveil.core.errors import ConfigError
from splitveil.core.options import Options

Compose = Literal["single", "two_pass", "direct", "project"]
WeightLr = Literal["released", "capped", "off"]


class Data(Options):
    """Which pictures, and who may see which of them (DESIGN 5)."""

    name: str = Field("fashion-mini", description="a registered data set, or the path of an .npz or an image folder")
    protocol: Literal["disjoint", "published"] = Field(
        "disjoint", description="four disjoint parts, or defender and attacker on the same pictures as in the paper"
    )
    augment: bool = Field(True, description="crop, flip and rotation on the device, as the data set declares them")
    image_size: int | None = Field(None, ge=1, description="side to which an image folder is resized")
    limit: int | None = Field(
        None, ge=1, description="use only so many training pictures, in class proportion (trials)"
    )


class Model(Options):
    """Which network, cut where."""

    name: str = Field("tiny", description="a registered model")
    cut: int | None = Field(None, ge=1, description="position of the cut; the model's own default when absent")
    output: Literal["sigmoid", "batchnorm", "none"] = Field("sigmoid", description="last operation on the device")


class Train(Options):
    """The training procedure (SPEC 6). `None` means: what the surrogate's mode recommends (SPEC 6.9, 9.1)."""

    epochs: int = Field(20, ge=1, description="passes over the training pictures")
    init_from: str | None = Field(None, description="a finished run's folder: fine-tune its weights (SPEC 6.4, 6.7)")
    batch_size: int = Field(128, ge=1, description="pictures per step, over all processes")
    balanced_batches: tuple[int, int] | None = Field(
        None, description="P classes x Q samples per batch, in place of batch_size (SPEC 9 f)"
    )
    lr: float = Field(0.05, gt=0, description="learning rate of the first epoch")
    momentum: float = Field(0.9, ge=0, lt=1, description="of SGD")
    weight_decay: float = Field(5e-4, ge=0, description="of SGD, on every parameter but those that defences learn")
    schedule: Literal["multistep", "cosine", "constant"] = Field("multistep", description="how lr falls (SPEC 6.7)")
    milestones: tuple[int, ...] | None = Field(None, description="epochs from which lr is multiplied by gamma")
    gamma: float = Field(0.2, gt=0, le=1, description="factor on lr at every milestone")
    lr_min: float = Field(0.0, ge=0, description="where the cosine ends")
    first_epoch_lr: Literal["base", "zero"] = Field("base", description="zero: as the released code (SPEC 6.7)")
    privacy_weight: float = Field(16.0, ge=0, description="lambda, the weight of the surrogate")
    privacy_every: int | None = Field(
        None, ge=1, description="the surrogate acts in every so many steps, with so many times its weight (lazily)"
    )
    warmup_epochs: int | None = Field(None, ge=0, description="the surrogate first acts in epoch warmup_epochs + 1")
    ramp_epochs: int = Field(0, ge=0, description="after warm-up, raise the weight linearly over so many epochs")
    compose: Compose | None = Field(None, description="how the two gradients meet (SPEC 6.3)")
    wlr: WeightLr | None = Field(None, description="learning-rate factor on the surrogate's gradient (SPEC 6.4)")
    progressive: bool = Field(False, description="stages: task only, surrogate only, everything (SPEC 6.7)")
    base_epochs: int = Field(5, ge=0, description="length of the first progressive stage")
    adapt_epochs: int = Field(5, ge=0, description="length of the second progressive stage")
    stop: Literal["epochs", "converged"] = Field("epochs", description="converged: end when nothing has improved")
    select: Literal["last", "val_best", "test_best"] = Field("last", description="which epoch's weights are kept")
    eval_every: int = Field(1, ge=1, description="epochs between evaluations (always in the last eighth)")
    checkpoint_every: int | None = Field(None, ge=1, description="epochs between checkpoints; every 20 s when absent")
    keep_every: int | None = Field(None, ge=1, description="keep the checkpoint of every so many epochs")
    precision: Literal["auto", "float32", "bfloat16"] = Field("auto", description="auto: bfloat16 on CUDA")
    capture: Literal["auto", "off", "graph", "compile"] = Field("auto", description="how the step is accelerated")
    store_gates: bool = Field(False, description="keep attention, assignments and gates of one batch per epoch")
    max_nonfinite: int = Field(20, ge=1, description="stop after so many non-finite steps in one epoch")
    collapse_patience: int = Field(3, ge=1, description="stop after so many collapsed epochs in a row")

    @field_validator("balanced_batches")
    @classmethod
    def _at_least_one(cls, balanced: tuple[int, int] | None) -> tuple[int, int] | None:
        if balanced is not None and min(balanced) < 1:
            raise ValueError("a batch needs at least 1 class with 1 sample")
        return balanced


class Audit(Options):
    """How hard the result is attacked (SPEC 8)."""

    tier: Literal["smoke", "standard", "deep"] = Field("smoke", description="how many attacks, how strong")
    mode: Literal["training_time", "inference_time"] = Field(
        "training_time", description="attacker's pictures: the auxiliary part, or nine tenths of the test part"
    )
    epochs: int | None = Field(None, ge=1, description="attack epochs; the tier's own number when absent")
    num_images: int | None = Field(None, ge=1, description="test pictures scored; the tier's own number when absent")
    attacks: dict[str, dict[str, Any]] | None = Field(
        None, description="names, or tables with options, in place of the tier's own choice"
    )
    measures: tuple[str, ...] = Field((), description="measures beside MSE, SSIM and PSNR, by name")
    sanity: bool = Field(True, description="first prove the attacks on models of known answer; no verdict without")

    @field_validator("attacks", mode="before")
    @classmethod
    def _attack_options(cls, given: Any) -> Any:
        """A list of names means their usual options; every name and every option is checked here."""
        if given is None:
            return None
        tables: dict[Any, Any] = given if isinstance(given, dict) else {name: {} for name in _names(given)}
        if not tables:
            raise ConfigError("'audit.attacks' names no attack.", "Name at least one, or leave it out.")
        for name, options in tables.items():
            where = f"audit.attacks.{name}"
            ATTACKS.load(name).Options.parse(as_table(options, where), where)
        return tables

    @field_validator("measures")
    @classmethod
    def _known_measures(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for name in given:
            MEASURES.entry(name)
        return given


def _names(value: Any) -> list[str]:
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise ConfigError("'audit.attacks' must be a list of names or a table.", 'For example: attacks = ["decoder"]')
    return list(value)


def as_table(value: Any, where: str) -> dict[str, Any]:
    """`value`, which must be a table; an error names the key."""
    if not isinstance(value, dict):
        raise ConfigError(f"'{where}' must be a table.", f"Write [{where}] and its keys below it.")
    return value
