"""What all surrogates share: the calling contract (DESIGN 2, SPEC 0.2) and the edge cases (SPEC 0.3).

A subclass declares its `Options`, its `MODES` and `PRESETS`, and implements `_terms`, which returns *unreduced*
per-class losses; everything that must hold for all of them happens here, once:

    check inputs -> float32 or better, autocast off -> mask non-finite x -> _terms -> reduce over classes -> guards

Legend: B batch, C classes, D feature dim.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, is_dataclass
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from splitveil.core.errors import ConfigError, InputError, nearest
from splitveil.core.options import Options
from splitveil.functional.classes import class_indicator, safe_divide
from splitveil.functional.graph import finite_gradient
from splitveil.functional.reduction import reduce_classes

Mode = Literal["corrected", "faithful"]


@dataclass(frozen=True)
class SurrogateOutput:
    """What a surrogate returns (DESIGN 2). Users add ``weight * out.loss + out.fit_loss`` to their loss."""

    loss: Tensor
    fit_loss: Tensor
    intra_mse: Tensor
    per_class: Tensor
    diagnostics: dict[str, Tensor]

    def __repr__(self) -> str:
        single = ("loss", "fit_loss", "intra_mse")
        values = [f"{name}={getattr(self, name).item():.4g}" for name in single]
        more = [f"per_class=[{len(self.per_class)} numbers]", f"diagnostics=[{', '.join(self.diagnostics)}]"]
        return f"SurrogateOutput({', '.join([*values, *more])})"


@dataclass(frozen=True)
class Preset:
    """A named set of options: those of a mode, with these changed."""

    mode: Mode
    options: Mapping[str, Any] = field(default_factory=dict)


class SurrogateOptions(Options):
    """Options that every surrogate has. Field defaults are the faithful values; `MODES` holds what differs."""

    name: str = Field(description="the surrogate's name in the registry")
    mode: Mode = Field("corrected", description="which defaults: the design notes' own, or the repaired ones (SPEC 9)")
    preset: str | None = Field(None, description="a named set of options; it also decides the mode")
    loss_scale: float = Field(1.0, ge=0, description="s, multiplies rob_loss in training (SPEC 6.1)")
    rate_sigma: float = Field(
        0.0,
        ge=0,
        le=10,
        exclude_if=lambda value: value == 0,  # runs without it keep the address they had before it existed
        description="the rate log(1 + var/noise^2)/2 is measured against this noise, or the run's where that is more; "
        "0 where form or base is named",
    )
    debug: bool = Field(False, description="check labels on every call, also on CUDA (costs a synchronisation)")

    def rate_level(self, sigma: float) -> float:
        """The noise that a rate is measured against; σ is that of the run.

        The gradient of log(1 + v/n²)/2 is 1/(v + n²)/2: against little noise it presses hardest on what is compact
        already, against more noise (n² above the variances) on all alike, so that less accuracy is lost for the same
        leak (measured: docs/results.md, rate-sigma).
        """
        return max(sigma, self.rate_sigma)

    @property
    def training_defaults(self) -> dict[str, Any]:
        """What [train] uses where the recipe says nothing: compose, wlr, warmup_epochs (SPEC 6.9, 9.1)."""
        return dict(self.corrected_training if self.mode == "corrected" else self.faithful_training)

    corrected_training: ClassVar[Mapping[str, Any]] = {"compose": "single", "wlr": "capped", "warmup_epochs": 1}

    faithful_training: ClassVar[Mapping[str, Any]] = {"compose": "single", "wlr": "released", "warmup_epochs": 0}


@dataclass(frozen=True)
class Batch:
    """One clean batch, ready for statistics: finite, at least float32, flattened."""

    x: Tensor  # [B, D]
    y: Tensor  # [B], every entry in 0..C-1
    valid: Tensor  # [B] bool: the label was in range
    member: Tensor  # [C, B] class indicator; a sample with a bad label belongs to no class
    count: Tensor  # [C] = M_c
    share: Tensor  # [C] = p_c = M_c / B
    finite: Tensor  # 0-dim bool: False means that x was replaced by zeros
    sound: Tensor  # [C] bool: False means that squares of the class would overflow; its x was replaced by zeros
    epoch: int | None
    generator: torch.Generator | None


@dataclass(frozen=True)
class Terms:
    """Unreduced result of one surrogate."""

    per_class_loss: Tensor  # [C] L̂_c
    weight: Tensor  # [C] class weight, for example p_c
    used: Tensor  # [C] bool
    normalise: bool  # divide by the weight of the used classes
    intra_mse: Tensor  # 0-dim, on the representation whose variance is taken
    fit_loss: Tensor | None = None  # gradient to the surrogate's own parameters only
    gate: Tensor | None = None  # [C] class gate g_c; multiplies after normalisation
    keep: Tensor | None = None  # 0-dim 0/1 factor; 0 means shut off (SPEC 4.6)
    diagnostics: dict[str, Tensor] = field(default_factory=dict)
    state: dict[str, Tensor] = field(default_factory=dict)  # what `_commit` may write to buffers


class Surrogate(nn.Module):
    """Base class; see the module docstring. Subclasses are final."""

    Options: ClassVar[type[SurrogateOptions]] = SurrogateOptions
    MODES: ClassVar[Mapping[str, Mapping[str, Any]]] = {"faithful": {}, "corrected": {}}
    PRESETS: ClassVar[Mapping[str, Preset]] = {}
    refresh_needed: ClassVar[bool] = False  # True where the method has epoch statistics (SPEC 1.2)
    refresh_in_training_batches: ClassVar[bool] = False  # True where a batch is a sequence (SPEC 5.7)

    def __init__(
        self, *, feature_shape: tuple[int, ...], num_classes: int, sigma: float, options: SurrogateOptions
    ) -> None:
        super().__init__()
        kind = type(self)
        if kind._terms is Surrogate._terms and kind.forward is Surrogate.forward:  # not hours later, after the warm-up
            raise InputError(
                f"The surrogate {kind.__name__} has no _terms(batch), which says what each class costs.",
                "Look at the spelling of its methods.",
            )
        if num_classes < 1 or not feature_shape or min(feature_shape) < 1:
            raise InputError(f"feature_shape {feature_shape} and num_classes {num_classes} must be positive.")
        if not math.isfinite(sigma) or sigma < 0:
            raise InputError(f"sigma must be a finite number >= 0, not {sigma}.")
        self.feature_shape = tuple(feature_shape)
        self.num_classes = num_classes
        self.sigma = float(sigma)
        self.dim = math.prod(feature_shape)
        self.options = options
        self.fitting = True  # False: the next calls give fit_loss = 0, as if φ were frozen

    @classmethod
    def resolve(cls, where: str = "surrogate", **given: Any) -> SurrogateOptions:
        """Options from mode or preset, then single keywords; unknown names are errors that suggest the nearest.

        A preset is a whole set, mode included: what is called gmm.released is that, whatever mode stands beside it.
        Who names the cost of a variance (`form`, `base`) gets that formula as it stands, `rate_sigma` only if named as
        well; so a complete configuration from before that option existed still means what it meant.
        """
        preset_name = given.get("preset")
        if preset_name is not None and preset_name not in cls.PRESETS:
            raise ConfigError(f"{where}: there is no preset '{preset_name}'.", nearest(preset_name, cls.PRESETS))
        preset = cls.PRESETS[preset_name] if preset_name is not None else None
        mode = given.get("mode") or "corrected"
        if preset and mode in cls.MODES:  # a mode that does not exist is still an error
            mode = preset.mode
        values = dict(cls.MODES.get(mode, {})) | dict(preset.options if preset else {})
        if not {"form", "base"}.isdisjoint(given):
            values.pop("rate_sigma", None)
        values |= given | {"mode": mode}
        return cls.Options.parse(values, where)

    def forward(
        self, z: Tensor, y: Tensor, *, epoch: int | None = None, generator: torch.Generator | None = None
    ) -> SurrogateOutput:
        """Loss of one batch: z [B, *feature_shape] clean features, y [B] labels."""
        self._check(z, y)
        with torch.autocast(z.device.type, enabled=False):
            batch = self._enter(z, y, epoch, generator)
            terms = self._terms(batch)
            self._check_terms(terms, batch)
            output, good = self._leave(terms, batch)
            if self.training:
                with torch.no_grad():
                    self._commit(batch, terms, good)
            return output

    def extra_repr(self) -> str:
        """What `print(surrogate)` shows: the contract, and the options that are not the defaults of its mode."""
        usual = type(self).resolve(name=self.options.name, mode=self.options.mode)
        chosen = [f"{key}={value!r}" for key, value in self.options if key != "mode" and value != getattr(usual, key)]
        contract = f"feature_shape={self.feature_shape}, num_classes={self.num_classes}, sigma={self.sigma:g}"
        return ", ".join([contract, f"mode={self.options.mode!r}", *chosen])

    def set_sigma(self, sigma: float) -> None:
        """Follow noise that is learned (SPEC 0.1): everything behaves as if the surrogate had been made with `sigma`.

        Modules keep what they derive from sigma as floats, or as frozen dataclasses with a field `sigma`; both are
        copied from a surrogate that is newly made with the new value. Parameters, buffers and random streams stay.
        """
        with torch.random.fork_rng(devices=[]):
            fresh = type(self)(
                feature_shape=self.feature_shape, num_classes=self.num_classes, sigma=sigma, options=self.options
            )
        for own, other in zip(self.modules(), fresh.modules(), strict=True):
            for name, value in vars(other).items():
                record = is_dataclass(value) and not isinstance(value, type) and hasattr(value, "sigma")
                if isinstance(value, float) or record:
                    setattr(own, name, value)
        self.load_state_dict(self.state_dict())  # whatever is made from the state when it is loaded is made anew

    def refresh(self, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Fit epoch statistics from (z, y) batches where the method has them; nothing elsewhere."""

    def _terms(self, batch: Batch) -> Terms:
        """What each class costs in this batch, not reduced; every surrogate has its own."""
        raise NotImplementedError

    def _commit(self, batch: Batch, terms: Terms, good: Tensor) -> None:
        """Write buffers after a training call that did not fail; `good` (0-dim bool) is False for non-finite x."""

    def _check(self, z: Tensor, y: Tensor) -> None:
        for name, given in (("features", z), ("labels", y)):
            if not isinstance(given, Tensor):
                raise InputError(f"The {name} are a {type(given).__name__}, not a tensor.", "Use torch.as_tensor.")
        if tuple(z.shape[1:]) != self.feature_shape:
            raise InputError(
                f"Features have shape {tuple(z.shape)}; this surrogate was made for [B, *{self.feature_shape}]."
            )
        if y.ndim != 1 or y.shape[0] != z.shape[0]:
            raise InputError(f"Labels have shape {tuple(y.shape)}; expected [{z.shape[0]}], one per feature.")
        if not z.is_floating_point() or y.is_floating_point() or y.dtype is torch.bool:
            raise InputError(f"Features must be floating point and labels integer, not {z.dtype} and {y.dtype}.")
        # a look at the values would synchronise with a GPU and break a compiled graph: there the labels are masked
        if not torch.compiler.is_compiling() and (z.device.type == "cpu" or self.options.debug) and y.numel():
            low, high = (int(value) for value in y.aminmax())
            if low < 0 or high >= self.num_classes:
                raise InputError(f"Labels run from {low} to {high}; allowed are 0 to {self.num_classes - 1}.")

    def _check_terms(self, terms: Terms, batch: Batch) -> None:
        """Types and shapes of what `_terms` gave, never values: nothing here waits for a GPU."""
        who = f"{type(self).__name__}._terms"
        if not isinstance(terms, Terms):
            raise InputError(f"{who} gave a {type(terms).__name__}, not Terms.")
        per_class = {"per_class_loss": terms.per_class_loss, "weight": terms.weight, "used": terms.used}
        single = {"intra_mse": terms.intra_mse, "fit_loss": terms.fit_loss, "keep": terms.keep}
        shapes = dict.fromkeys(per_class, (self.num_classes,)) | dict.fromkeys(single, ())
        for name, value in {**per_class, **single, **terms.diagnostics}.items():
            if value is None and name in ("fit_loss", "keep"):
                continue
            if not isinstance(value, Tensor):
                raise InputError(f"{who} gave a {type(value).__name__} as '{name}', not a tensor.")
            if name in shapes and tuple(value.shape) != shapes[name]:
                raise InputError(f"{who} gave '{name}' the shape {list(value.shape)}, not {list(shapes[name])}.")
        if torch.is_grad_enabled() and batch.x.requires_grad and not terms.per_class_loss.requires_grad:
            raise InputError(f"{who} gave a 'per_class_loss' without gradient.", "It must follow from batch.x.")

    def _enter(self, z: Tensor, y: Tensor, epoch: int | None, generator: torch.Generator | None) -> Batch:
        x = z.flatten(1)
        if x.dtype in (torch.float16, torch.bfloat16):
            x = x.float()
        finite = torch.isfinite((x.detach() * 0.0).sum())  # Inf·0 and NaN·0 are NaN: a tenth of the time of isfinite(x)
        valid = (y >= 0) & (y < self.num_classes)
        y = torch.where(valid, y, 0).long()
        member = class_indicator(y, self.num_classes, x.dtype, valid)
        # A class whose squares (and ratios of them) would overflow is dropped whole, like one with a non-finite loss.
        huge = x.detach().square().sum(dim=1) > math.sqrt(torch.finfo(x.dtype).max)  # [B]
        sound = (member @ huge.to(x.dtype)) == 0  # [C]
        # masked before anything is computed: multiplying Inf by 0 later would give NaN
        x = finite_gradient(torch.where((finite & sound[y])[:, None], x, 0.0))
        count = member.sum(dim=1)
        share = count / max(x.shape[0], 1)
        return Batch(x, y, valid, member, count, share, finite, sound, epoch, generator)

    def _leave(self, terms: Terms, batch: Batch) -> tuple[SurrogateOutput, Tensor]:
        loss, per_class, counted = reduce_classes(
            torch.where(batch.sound, terms.per_class_loss, torch.inf),
            terms.weight,
            terms.used,
            normalise=terms.normalise,
            gate=terms.gate,
        )
        finite = torch.isfinite(loss)
        counted = counted & finite  # a sum that overflows, or a weight or gate that is not finite, loses every class
        good = batch.finite & finite
        keep = good if terms.keep is None else good & (terms.keep > 0)
        fit_loss = terms.fit_loss if terms.fit_loss is not None else loss.new_zeros(())
        diagnostics = {
            "per_class_loss": torch.where(counted, terms.per_class_loss, 0.0),
            "per_class_count": batch.count,
            "class_used": counted,
            "classes_nonfinite": (terms.used & ~counted).sum(),
            "nonfinite": ~batch.finite,
            "fit_nonfinite": ~torch.isfinite(fit_loss),
            "labels_invalid": batch.x.shape[0] - batch.count.sum(),
            "intra_mse_raw": self._intra_raw(batch, terms.used),
            **terms.diagnostics,
        }
        diagnostics["class_used"] = diagnostics["class_used"] & batch.sound
        output = SurrogateOutput(
            loss=torch.where(keep, loss, 0.0),
            fit_loss=torch.where(good & torch.isfinite(fit_loss), fit_loss, 0.0),
            intra_mse=torch.where(good & torch.isfinite(terms.intra_mse), terms.intra_mse, 0.0).detach(),
            per_class=torch.where(keep, per_class, 0.0),
            diagnostics={name: value.detach() for name, value in diagnostics.items()},
        )
        return output, good

    @staticmethod
    @torch.no_grad()
    def _intra_raw(batch: Batch, used: Tensor) -> Tensor:
        """Σ_c p_c·MSE_c on raw x around the class means: the only monitor comparable across variants (SPEC 0.2)."""
        x = batch.x.detach()
        mean = (batch.member @ x) / batch.count.clamp(min=1.0)[:, None]  # [C, D]
        square = torch.linalg.vector_norm(x - mean.index_select(0, batch.y), dim=1).square() / x.shape[1]  # [B]
        mse = safe_divide(batch.member @ square, batch.count)  # [C]
        return (torch.where(used, batch.share, 0.0) * mse).sum()
