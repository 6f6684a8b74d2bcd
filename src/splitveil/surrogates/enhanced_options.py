"""Options of the `enhanced` surrogate under the names of SPEC 5."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from splitveil.surrogates.slots import CORRECTED_SLOTS, SlotOptions

CORRECTED: Mapping[str, Any] = {
    **CORRECTED_SLOTS,
    "slot_axis": "slots",
    "dropout": 0.0,
    "distance": "corrected",
    "bank_samples": 1024,
    "bank_every": 4,
    "max_steps": 10,
    "space": "raw",
    "base": "rate",
}


class EnhancedOptions(SlotOptions):
    """Options of `enhanced`; the defaults are N0's."""

    name: Literal["enhanced"] = "enhanced"
    num_slots: int | Literal["auto"] = Field(12, description="S; 'auto' prunes empty slots and splits the heaviest")
    num_iterations: int = Field(4, ge=1, description="T, rounds of slot attention")
    num_heads: int = Field(8, ge=1, description="H; must divide the width")
    num_clusters: int = Field(3, ge=1, description="K, centroids per class")
    dropout: float = Field(0.1, ge=0, lt=1, description="in attention, MLPs and reconstruction")
    tokens: Literal["class", "spatial", "sample"] = Field("class", description="what forms one sequence (SPEC 9 i)")
    scale_factors: tuple[float, ...] = Field((0.5, 2.0, 1.0), min_length=1, description="hidden widths over D")
    complexity_gate: Literal["scalar", "off"] = Field("scalar", description="one gate for the batch, or none")
    complexity_axis: Literal["coordinates", "samples"] = Field("coordinates", description="samples is the prototype")
    gate_threshold: float = Field(0.1, ge=0, lt=0.5, description="the complexity gate stays this far from 0 and 1")
    dynamic_weight: float = Field(
        0.5, description="first value of the weight, through a sigmoid, of the complexity gate"
    )
    temperature_decay: float = Field(0.2, ge=0, description="the slots' temperature falls so much per round")
    slot_axis: Literal["tokens", "slots"] = Field("tokens", description="axis of the softmax (SPEC 9 i)")
    token_norm: Literal["none", "mean"] = Field("mean", description="with slot_axis=slots: weighted mean over tokens")
    competition: Literal["final", "every_iteration"] = Field(
        "final", description="when slots are weighted against each other; every_iteration is the prototype"
    )
    bank_samples: int = Field(0, ge=0, description="training samples the bank is fitted to; 0: all of them")
    bank_every: int = Field(1, ge=1, description="epochs between two fits of the bank")
    max_steps: int = Field(50, ge=1, description="rounds of k-means in one fit; every fit starts from the last one")
    bank_space: Literal["enhanced", "raw", "batch"] = Field(
        "enhanced", description="where centroids live; raw is the prototype, batch the mean of the class (SPEC 9 r)"
    )
    distance: Literal["notes", "corrected"] = Field(
        "notes", description="notes subtract the cosine distance (SPEC 9 b)"
    )
    cos_weight: float = Field(0.1, ge=0, description="weight of the cosine distance")
    cos_relative: bool = Field(False, description="multiply cos_weight by the dimension (SPEC 9 b)")
    assign: Literal["hard"] = Field("hard", description="nearest centroid of the own class")
    centroid_grad: Literal["frozen"] = Field("frozen", description="centroids change at a refresh only")
    space: Literal["enhanced", "gated", "raw"] = Field("enhanced", description="whose variance is taken (SPEC 9 a)")
    base: Literal["notes", "threshold", "rate"] = Field(
        "notes", description="threshold 1e-4 or theta*sigma^2, or the rate (SPEC 9 o)"
    )
    log_entropy: bool = Field(True, description="false: the mean variance instead of its logarithm")
    var_threshold: float = Field(0.125, ge=0, description="theta of base=threshold")
    class_weight: Literal["share", "equal"] = Field("equal", description="p_c, or the mean over classes (SPEC 9 n)")
    architecture: Literal["serial", "parallel"] = Field("serial", description="parallel is the baseline of SPEC 5.9")
    parallel_alpha: float | Literal["gate"] = Field(0.5, description="weight of the mixture in the parallel baseline")

    faithful_training: ClassVar[Mapping[str, Any]] = {"compose": "direct", "wlr": "off", "warmup_epochs": 0}
    # lazily: its many small kernels would otherwise lengthen the step by more than 15 % on a GPU
    corrected_training: ClassVar[Mapping[str, Any]] = dict(SlotOptions.corrected_training) | {"privacy_every": 8}
