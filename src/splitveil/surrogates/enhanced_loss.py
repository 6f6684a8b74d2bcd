"""The loss of `enhanced` from variances: information per cluster, and the parallel baseline (SPEC 5.8, 5.9).

Legend: B batch, A rows (classes), K clusters, D feature dim, V width of X_e.
"""

from __future__ import annotations

import torch
from torch import Tensor

from splitveil.functional.dispersion import weighted_moments
from splitveil.functional.hinge import log_threshold, rate, relu_hinge
from splitveil.functional.segments import Segments
from splitveil.surrogates.enhanced_options import EnhancedOptions

VAR_SHIFT = 1e-4  # SPEC 5.8: σ² = mean square + 1e-4
LOG_GUARD = 1e-8  # SPEC 5.8: log(σ² + 1e-8)
PARALLEL_SHIFT = 1e-3 + 1e-4  # SPEC 5.9


def information(var: Tensor, sigma: float, options: EnhancedOptions) -> Tensor:
    """I_ck: var [A, K, D] -> [A, K] (SPEC 5.8; 9 o)."""
    if options.base == "rate":
        return rate(var, options.rate_level(sigma)).mean(dim=-1)
    if options.base == "threshold":  # without the shift of 1e-4, which lies above θσ²
        log_tau = log_threshold(sigma, options.var_threshold, 0.0)
        cost = relu_hinge((var + LOG_GUARD).log(), log_tau) if options.log_entropy else var
    else:
        # relu(log(var + 1e-4 + 1e-8) − log 1e-4), as log(1 + ...): exact in float32 near 0; never negative
        shifted = torch.log1p((var + LOG_GUARD) / VAR_SHIFT)
        cost = shifted if options.log_entropy else var + VAR_SHIFT
    return cost.mean(dim=-1)


def beside_the_mixture(
    mixture: Tensor, enhanced: Tensor, segments: Segments, gate: Tensor | None, alpha: float | str
) -> Tensor:
    """α·L_GMM(X) + (1−α)·mean_d log(Var_c(X_enh) + 1e-3 + 1e-4), per class [A] (SPEC 5.9).

    `mixture` is L_GMM [A], `enhanced` X_enh [B, V]; `alpha` is a number, or "gate" for the complexity gate.
    """
    var = weighted_moments(enhanced, torch.ones_like(enhanced[:, :1]), segments).var[:, 0]  # [A, V]
    weight = gate if isinstance(alpha, str) else alpha
    assert weight is not None  # alpha=gate without a gate is refused at the start
    return weight * mixture + (1 - weight) * (var + PARALLEL_SHIFT).log().mean(dim=1)
