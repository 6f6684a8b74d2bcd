"""Options of the `slot_gated` surrogate under the names of SPEC 4."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from splitveil.surrogates.gates import PenaltyOptions
from splitveil.surrogates.shut_off import ShutOffOptions
from splitveil.surrogates.slots import CORRECTED_SLOTS, SlotOptions

RAW = {"space": "raw", "base": "rate", "centroid_grad": "detach", "gates": "none"}
EARLIER = {  # the earlier set of SPEC 4.5
    "assign_temp": 10.0,
    "slot_power": 2.0,
    "snr_thresh": 0.3,
    "snr_sharp": 10.0,
    "softplus_beta": 1.0,
    "margin_m": 0.1,
    "class_gate_a": 10.0,
    "class_gate_b": 0.05,
}
CORRECTED: Mapping[str, Any] = {
    **CORRECTED_SLOTS,
    **RAW,
    "loss_scale": 1.0,
    "learnable_scalars": False,
    "slot_temp": "one",
    "early_shut": "off",
    "eps_var": "tau",
    "class_gate": "off",
}


class SlotGatedOptions(PenaltyOptions, SlotOptions, ShutOffOptions):
    """Options of `slot_gated`; the defaults are those of N2 and N4."""

    name: Literal["slot_gated"] = "slot_gated"
    loss_scale: float = Field(0.25, ge=0, description="s, multiplies rob_loss in training (SPEC 6.1)")
    num_heads: int = Field(4, ge=1, description="H, heads of the cross attention")
    token_norm: Literal["none", "mean"] = Field("none", description="mean divides by the slot's mass (SPEC 9 i)")
    slot_temp: Literal["quarter", "one"] = Field("quarter", description="extra temperature D^(1/4), or 1 (SPEC 9 h)")
    attn_logit_scale: float = Field(1.0, gt=0, description="multiplies the logits of slot attention (SPEC 9 h)")
    qkv_proj: bool = Field(True, description="projections in the cross attention; false is N4's literal eq. 8")
    alpha_xattn: float = Field(0.1, description="first value of the cross attention's gate; tanh of it multiplies")
    alpha_ffn: float = Field(0.1, description="the same for the block behind it; with both 0 nothing is enhanced")
    assign: Literal["soft", "hard"] = Field("soft", description="responsibilities, or the slot of largest cosine")
    assign_source: Literal["normalised", "enhanced"] = Field("normalised", description="what is compared with slots")
    distance: Literal["cosine"] = Field("cosine", description="how features and slots are compared")
    centroid_grad: Literal["flow", "detach"] = Field("flow", description="detach: no gradient to x through slots")
    ln_affine: Literal[False] = Field(False, description="always false: h is a plain layer norm (SPEC 4.1)")
    learnable_scalars: bool = Field(True, description="the scalars below are parameters (SPEC 4.5)")
    eps_var: float | Literal["tau"] = Field(1e-4, description="variance floor; 'tau' is min(1e-4, tau/10) (SPEC 9 l)")
    assign_temp: float = Field(12.0, ge=0, description="beta_a: 0 assigns to all slots alike, large to the nearest")
    slot_power: float = Field(2.5, ge=0, description="gamma_s: 0 weights slots alike, large counts only the heaviest")
    snr_thresh: float = Field(0.25, description="where the SNR gate is half open")
    snr_sharp: float = Field(14.0, description="slope of the SNR gate")
    softplus_beta: float = Field(1.5, gt=0, description="sharpness of the softplus threshold; large is a relu")
    margin_m: float = Field(0.05, description="moves the threshold up, in units of log variance")
    class_gate_a: float = Field(12.0, description="slope of the class gate")
    class_gate_b: float = Field(0.04, description="share of the batch at which the class gate is half open")

    faithful_training: ClassVar[Mapping[str, Any]] = {"compose": "single", "wlr": "released", "warmup_epochs": 3}
    # lazily: its many small kernels would otherwise lengthen the step by more than 15 % on a GPU
    corrected_training: ClassVar[Mapping[str, Any]] = dict(SlotOptions.corrected_training) | {"privacy_every": 2}
