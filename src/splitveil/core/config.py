"""The one frozen tree that describes a run: data, model, defence, surrogate, train, audit, seed.

A recipe is a TOML file. Precedence: defaults < recipe < `--set section.key=value`. Options of a surrogate or of a
defence belong to that component (its `Options` class); they are looked up through the registry, never by import path.
`resolved` fills in what depends on the chosen surrogate, so that the `config.toml` of a run is complete.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SerializeAsAny, field_validator, model_validator

from splitveil.core.catalogue import ATTACKS, DATASETS, DEFENCES, MODELS, SURROGATES
from splitveil.core.dotted import put
from splitveil.core.errors import ConfigError, nearest
from splitveil.core.files import looks_like_path
from splitveil.core.options import Options
from splitveil.core.recipes import find_recipe
from splitveil.core.toml import dump_toml, parse_value, read_toml

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
    measures: tuple[Literal["lpips"], ...] = Field(
        (), description="measures beside MSE, SSIM and PSNR; lpips needs the package of that name, installed by you"
    )
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
            ATTACKS.load(name).Options.parse(_as_table(options, where), where)
        return tables


class Config(Options):
    """A whole run."""

    seed: int = Field(125, ge=0, description="fixes weights, parts, order, noise and augmentation")
    data: Data = Data()
    model: Model = Model()
    defence: dict[str, SerializeAsAny[Options]] = Field(default_factory=dict)
    surrogate: SerializeAsAny[Options] | None = None
    train: Train = Train()
    audit: Audit = Audit()

    @model_validator(mode="before")
    @classmethod
    def _component_options(cls, tree: Any) -> Any:
        """Let each named component parse its own table."""
        if not isinstance(tree, dict):
            return tree
        tree = dict(tree)
        if isinstance(tree.get("defence"), dict):
            named = {name: _defence_options(name, table) for name, table in tree["defence"].items()}
            tree["defence"] = {name: options for name, options in named.items() if options is not None}
        if isinstance(tree.get("surrogate"), dict):
            tree["surrogate"] = _surrogate_options(tree["surrogate"])
        return tree

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise declared in `defence.noise` (0 without noise)."""
        noise = self.defence.get("noise")
        return float(getattr(noise, "sigma", 0.0))

    def to_toml(self) -> str:
        """Complete TOML text that parses back to an equal tree."""
        return dump_toml(self.model_dump(mode="json"))


def _defence_options(name: str, table: Any) -> Options | None:
    """The options of one defence; None where `NAME = false` takes it away."""
    if isinstance(table, Options):
        return table
    if table is False:
        DEFENCES.entry(name)  # a slip would leave the defence that was meant
        return None
    options: type[Options] = DEFENCES.load(name).Options
    return options.parse(_as_table(table, f"defence.{name}"), f"defence.{name}")


def _surrogate_options(table: dict[str, Any]) -> Options | None:
    name = table.get("name")
    if name is None:
        raise ConfigError("[surrogate] needs a name.", f"Choose one of {', '.join(SURROGATES.names())}, or 'none'.")
    if name == "none":
        return None
    rest = {key: value for key, value in table.items() if key != "name"}
    return SURROGATES.load(name).resolve(where="surrogate", **rest)


def _names(value: Any) -> list[str]:
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise ConfigError("'audit.attacks' must be a list of names or a table.", 'For example: attacks = ["decoder"]')
    return list(value)


def _as_table(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"'{where}' must be a table.", f"Write [{where}] and its keys below it.")
    return value


def load_config(recipe: str | Path | None = None, overrides: list[str] | None = None, **tree: Any) -> Config:
    """A config from a recipe (its path or name), a tree given as keywords, and `section.key=value` overrides.

    Where several are given, the later one of these three counts, key by key.
    """
    if not isinstance(recipe, str | Path | None):
        raise ConfigError(f"A recipe is a path or a name, not a {type(recipe).__name__}.", "Try load_config(**tree).")
    if isinstance(recipe, str):
        recipe = find_recipe(recipe)
    values = _merged(read_toml(recipe) if recipe is not None else {}, tree)
    for text in overrides or []:
        set_key(values, text)
    if "sweep" in values:
        raise ConfigError(
            f"{recipe or 'This recipe'} describes many runs: it has a [sweep] table.",
            "Run it with: splitveil sweep RECIPE",
        )
    for section in ("data", "model", "defence", "surrogate", "train", "audit"):
        if section in values and not isinstance(values[section], Options):
            _as_table(values[section], section)
    unknown = set(values) - set(Config.model_fields)
    if unknown:
        key = sorted(unknown)[0]
        raise ConfigError(f"Unknown key '{key}'.", nearest(key, Config.model_fields))
    return resolved(Config.parse(values, ""))


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Both trees, table by table; where both have a value, that of `above`."""
    both = {key: (below[key], value) for key, value in above.items() if key in below}
    tables = {key: _merged(*pair) for key, pair in both.items() if all(isinstance(table, dict) for table in pair)}
    return below | above | tables


def set_key(tree: dict[str, Any], text: str) -> None:
    """Apply one `section.key=value` to a nested dictionary."""
    path, equals, raw = text.partition("=")
    keys = [key.strip() for key in path.split(".")]
    if not equals or not all(keys):
        raise ConfigError(f"'{text}' is not of the form section.key=value.")
    put(tree, keys, parse_value(raw.strip()), where=f"'{text}'")


def names_a_path(name: str) -> bool:
    """Whether `data.name` is the path of something; a path that is not there or cannot be looked at is an error."""
    choices = "Name one of: " + ", ".join(DATASETS.names()) + "; or a file or folder."
    try:
        os.stat(name)
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a null byte
        if looks_like_path(name, ".npz"):
            raise ConfigError(f"There is no file or folder {name}.", choices) from None
        return False
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise ConfigError(f"'data.name' is no data set, and as a path it cannot be read: {reason}.", choices) from None
    return True


def resolved(config: Config) -> Config:
    """Check names; fill every `None` of [train] with what the surrogate's mode recommends, and the cut by the model."""
    if config.data.name in DATASETS.names() or not names_a_path(config.data.name):
        DATASETS.entry(config.data.name)
    cut = getattr(MODELS.load(config.model.name), "default_cut", None) if config.model.cut is None else config.model.cut
    defaults: dict[str, Any] = {"compose": "single", "wlr": "capped", "warmup_epochs": 0, "privacy_every": 1}
    if config.surrogate is not None:
        defaults |= getattr(config.surrogate, "training_defaults", {})
    if config.train.init_from is not None:
        defaults["wlr"] = "off"  # SPEC 6.4: w_lr = 1 when fine-tuning
    update = {key: value for key, value in defaults.items() if getattr(config.train, key) is None}
    model = config.model.model_copy(update={"cut": cut})
    return config.model_copy(update={"model": model, "train": config.train.model_copy(update=update)})
