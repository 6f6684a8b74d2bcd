"""Options of every surrogate with parameters of its own (SPEC 0.5, 9)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from splitveil.surrogates.base import SurrogateOptions


class LearnedOptions(SurrogateOptions):
    """Options of every surrogate with parameters."""

    surrogate_update: Literal["minimise", "frozen", "ascend", "likelihood"] = Field(
        "minimise", description="which loss trains the surrogate's own parameters (SPEC 9 c)"
    )
    memory: int = Field(0, ge=0, description="past features kept per class; 0 is off (SPEC 0.5)")
    memory_limit: int | None = Field(
        1024,
        ge=1,
        description="with many classes: so many in all, at least 8 per class; no limit where `memory` is given",
    )
    proj_dim: int = Field(
        0, ge=0, description="width of the fixed random projection for attention; 0 is off (SPEC 9.1)"
    )
    fit_every: int = Field(
        1, ge=1, description="the training engine trains the surrogate's own parameters in every so many steps only"
    )
    class_weight: Literal["share", "equal"] = Field("share", description="p_c, or the mean over classes (SPEC 9 n)")
    pooled: bool = Field(False, description="one within-class variance pooled over classes (SPEC 9 f)")
    unbiased: bool = Field(False, description="variance times M/(M-1) (SPEC 9 f)")
