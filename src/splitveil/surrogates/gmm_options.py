"""Options of the `gmm` surrogate under the names of SPEC 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from splitveil.functional.forms import COVARIANCE, Form
from splitveil.surrogates.base import SurrogateOptions

ALIGNED: Mapping[str, Any] = {"stats_index": "class", "align": "true"}
PAPER: Mapping[str, Any] = {
    **ALIGNED,
    "num_clusters": 3,
    "init_power": 2,
    "aggregation": "paper",
    "kappa": 1.0,
    "rho_max": 1.0,
    "class_size": "counted",
    "update_weights": True,
    "bank_images": "clean",
}
CORRECTED: Mapping[str, Any] = {
    **PAPER,
    "form": "gauss_diag",
    "rate_sigma": 0.1,
    "class_weight": "equal",
    "gradient": "batch",
    "max_steps": 10,
    "bank_samples": 20_000,
    "monitor": 0,
}


class GmmOptions(SurrogateOptions):
    """Options of SPEC 1; the defaults are the preset gmm.released."""

    name: Literal["gmm"] = "gmm"
    num_clusters: int | None = Field(None, ge=1, description="K; empty: the released rule, 5 or 15 (SPEC 1.2)")
    sigmoid_output: bool = Field(True, description="the edge half ends in a sigmoid: K = 5 where K is empty, else 15")
    fit: Literal["kmeans", "em"] = Field("kmeans", description="how components are fitted")
    init_power: Literal[1, 2] = Field(1, description="k-means++ draws with probability ∝ distance^power")
    max_steps: int = Field(50, ge=1, description="Lloyd steps at most")
    em_steps: int = Field(30, ge=0, description="iterations of expectation-maximisation")
    form: Form = Field("hinge_scalar", description="cost of a component (SPEC 1.4)")
    gamma: float | None = Field(None, gt=0, description="guard in the logarithm; empty: 0.01, logdet_hinge 1e-6")
    var_threshold: float = Field(0.125, ge=0, description="threshold of the hinge forms, times sigma²")
    per_dim: bool = Field(True, description="Gaussian forms per dimension; False restores the sum over D")
    aggregation: Literal["paper", "released"] = Field("released", description="all components, or mean over classes")
    class_weight: Literal["share", "equal"] = Field(
        "equal", description="classes by frequency, or all alike; share where a faithful call sets aggregation=paper"
    )
    memory: Literal[0] = Field(0, description="always 0: the bank holds what other methods keep past features for")
    kappa: float = Field(10.0, gt=0, description="factor of the batch share rho (SPEC 1.3)")
    rho_max: float = Field(0.99, gt=0, le=1, description="largest share of the batch in a variance")
    gradient: Literal["eq6", "batch"] = Field("eq6", description="batch: eq. 6's rho not in the gradient (not full)")
    class_size: Literal["counted", "nominal"] = Field("nominal", description="N_c: counted, or N/C as released")
    update_weights: bool = Field(False, description="eq. 5: the batch moves the weights π")
    persist: Literal["off", "on", "full"] = Field("off", description="eq. 5-6 accumulate; full: covariances as well")
    refit: Literal["epoch", "never"] = Field("epoch", description="never: no pass over the data after the first fit")
    stats_index: Literal["class", "sample"] = Field("sample", description="sample: the released index bug (SPEC 1.5)")
    align: Literal["true", "padded"] = Field("padded", description="padded: the released list padding (SPEC 1.5)")
    bank_samples: int = Field(0, ge=0, description="training samples the bank is fitted to; 0: all of them")
    bank_images: Literal["augmented", "clean"] = Field(
        "augmented", description="pictures the engine fits the bank to: augmented as released, or as they are"
    )
    monitor: int = Field(10, ge=0, description="mutual information at every n-th refresh; 0 switches it off")

    @model_validator(mode="before")
    @classmethod
    def _paper_counts_frequency(cls, values: Any) -> Any:
        """L = Σ_j π_j·(...) with the global π (SPEC 1.4): classes by frequency, unless `class_weight` is given."""
        if isinstance(values, dict) and values.get("aggregation") == "paper":
            return {"class_weight": "share"} | values
        return values

    @field_validator("align", mode="before")
    @classmethod
    def _true_is_a_word(cls, value: object) -> object:
        return "true" if value is True else value  # TOML and Python readers write align = true

    @model_validator(mode="after")
    def _consistent(self) -> GmmOptions:
        if self.refit == "never" and self.persist == "off":
            raise ValueError("refit = 'never' needs persist = 'on', or the statistics would never change")
        if self.persist == "full" and COVARIANCE[self.form] != "full":
            raise ValueError("persist = 'full' needs a form with full covariances (gauss_full or logdet_hinge)")
        return self

    @property
    def clusters(self) -> int:
        """K, by the released rule where it is not given."""
        return self.num_clusters or (5 if self.sigmoid_output else 15)
