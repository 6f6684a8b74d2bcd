"""Options of the `slot_cross` surrogate under the names of SPEC 2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from splitveil.surrogates.slots import CORRECTED_SLOTS, SlotOptions

CORRECTED: Mapping[str, Any] = {
    **CORRECTED_SLOTS,
    "ln_affine": False,
    "slot_axis": "slots",
    "slot_temp": "one",
    "dropout": 0.0,
    "assign": "soft",
    "centroid_grad": "detach",
    "space": "raw",
    "form": "rate",
    "classifier": "cloud",
}


class SlotCrossOptions(SlotOptions):
    """Options of `slot_cross`; the defaults are N1's."""

    name: Literal["slot_cross"] = "slot_cross"
    num_heads: int = Field(8, ge=1, description="H; must divide the channels of the feature")
    hidden: int = Field(128, ge=1, description="hidden width of the MLPs")
    dropout: float = Field(0.1, ge=0, lt=1, description="on the attention weights")
    slot_axis: Literal["tokens", "slots"] = Field("tokens", description="axis of the softmax (SPEC 9 i)")
    token_norm: Literal["none", "mean"] = Field("mean", description="with slot_axis=slots: weighted mean over tokens")
    slot_temp: Literal["quarter", "one"] = Field("one", description="extra temperature, as in slot_gated (SPEC 9 h)")
    attn_logit_scale: float = Field(1.0, gt=0, description="multiplies the logits of slot attention (SPEC 9 h)")
    slot_match: bool = Field(
        False, description="Hungarian matching of slots before averaging (SPEC 9 g); reads back to the host"
    )
    ln_affine: bool = Field(True, description="gain and bias in the layer norms of slot attention")
    match: Literal["project_slots", "project_features", "token_mean", "pad"] = Field(
        "project_slots", description="how slots and features come to the same width"
    )
    assign: Literal["hard", "soft"] = Field("hard", description="nearest centroid, or softmax of distances (SPEC 9 e)")
    assign_temp: float = Field(0.1, gt=0, description="T_a of the soft assignment")
    centroid_grad: Literal["flow", "detach"] = Field("flow", description="gradient through the centroids (SPEC 9 e)")
    space: Literal["slots", "raw"] = Field(
        "slots", description="variance around slot centroids, or of x around its weighted means"
    )
    norm: Literal["mean", "sum"] = Field("mean", description="sum does not divide the variance by the dimension")
    form: Literal["log", "linear", "rate"] = Field("log", description="what a variance costs (SPEC 2.4, 9.1)")
    hinge: bool = Field(False, description="relu(log var - log tau) in place of the logarithm (SPEC 9 q)")
    var_threshold: float = Field(0.125, ge=0, description="theta of the hinge")
    gamma: float = Field(1e-6, ge=0, description="gamma of the hinge")
    class_weight: Literal["share", "equal"] = Field("equal", description="p_c, or the mean over classes (SPEC 9 n)")
    classifier: Literal["attention", "cloud"] = Field("attention", description="who computes the logits (SPEC 2.3)")
    pool: Literal["enhanced", "slots"] = Field("enhanced", description="what the attention classifier pools")
    post_norm: bool = Field(False, description="layer norms and a linear map after the cross attention (prototype)")

    faithful_training: ClassVar[Mapping[str, Any]] = {"compose": "direct", "wlr": "off", "warmup_epochs": 0}
    # lazily: its many small kernels would otherwise lengthen the step by more than 15 % on a GPU
    corrected_training: ClassVar[Mapping[str, Any]] = dict(SlotOptions.corrected_training) | {"privacy_every": 3}

    @model_validator(mode="after")
    def _fixed_representation(self) -> Self:
        if self.surrogate_update == "likelihood" and self.match == "project_features":
            raise ValueError(
                "surrogate_update=likelihood cannot go with match=project_features, whose features it would shrink"
            )
        return self
