"""Lower bounds on the error of any attacker, beside what the attacks reached (SPEC 0.6).

z̃ = ẑ + ε, ε ~ N(0, σ²I), d the number of values of a picture; n transmissions of one picture act like noise σ²/n.
Noise of another scale for each value is the same after dividing the feature by those scales.

Entropy (CEM paper):  MSE >= exp(2·(H(x) - I)/d) / (2πe)  with  I = I(z̃; ẑ) <= H(Y) + Σ_c π_c·½·log det(I + Σ_c/σ²).
    With classes as components this holds for any distribution of the features: I(z̃; ẑ) = I(z̃; Y) + I(z̃; ẑ|Y), and a
    Gaussian has the most entropy for its covariance. Estimated covariances are the one approximation. H(x) is unknown
    for pictures, so only the factor exp(-2I/d) by which the feature lowers the bound is reported, unless H(x) is given.
Fisher (Maeng et al. 2023):  MSE >= 1/dFIL,  dFIL = tr(J'J)/(d·σ²).  For unbiased attackers only; a trained decoder is
    biased and may do better.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from splitveil.attacks.queries import features
from splitveil.data.augment import to_float
from splitveil.data.dataset import ImageSet
from splitveil.defences.base import Defence
from splitveil.defences.cloak import Cloak
from splitveil.defences.fisher import Fisher
from splitveil.defences.noise import Noise
from splitveil.models.split import SplitModel, transmitted

REPEATS = (1, 16)  # transmissions of one picture for which bounds are given
PROBES = 16  # random directions in which the Jacobian is measured
FISHER_PICTURES = 64
NO_NOISE = "The model declares no Gaussian noise of a fixed scale; without it no bound exists."
UNREADABLE = (
    "The manifest states noise, but a bound cannot be read from the graphs alone: "
    "it needs the model in torch, with its weights."
)
LARGEST_FULL = 2048  # features with more values are treated as uncorrelated, which only loosens the bound


def entropy_bound(input_entropy: float, information: float, dimension: int) -> float:
    """Theorem 1 with the Proposition: the smallest mean squared error per value that any attacker can reach."""
    return math.exp(2 * (input_entropy - information) / dimension) / (2 * math.pi * math.e)


def information_bound(z: Tensor, labels: Tensor, variance: float) -> tuple[float, str]:
    """Upper bound in nats on what noisy features [N, D] tell about the clean ones, and which covariances were used.

    Theorem 2 with classes as components; a single component where that is less. Full covariances where there are
    enough samples to estimate them, otherwise diagonal ones, whose determinant is never smaller (Hadamard).
    """
    z = z.flatten(1).double()
    counts = torch.bincount(labels)
    full = z.shape[1] <= LARGEST_FULL and int(counts[counts > 0].min()) >= 2 * z.shape[1]
    total = 0.0
    for label in counts.nonzero().flatten().tolist():
        share = float(counts[label]) / len(labels)
        # SPEC 0.6, Theorem 2: π_i·(-log π_i + ½·log(|Σ_i + Σ_p| / |Σ_p|))
        total += share * (-math.log(share) + _half_log_det(z[labels == label], variance, full))
    return min(total, _half_log_det(z, variance, full)), "full" if full else "diagonal"


def _half_log_det(z: Tensor, variance: float, full: bool) -> float:
    """½·log det(I + Σ/σ²) of the sample covariance."""
    centred = z - z.mean(0)
    if not full:
        return float(0.5 * torch.log1p(centred.square().mean(0) / variance).sum())
    matrix = centred.T @ centred / len(z) / variance
    return float(0.5 * torch.linalg.slogdet(matrix + torch.eye(len(matrix), dtype=z.dtype, device=z.device)).logabsdet)


def fisher_leakage(edge: Callable[[Tensor], Tensor], x: Tensor, variance: float, generator: torch.Generator) -> Tensor:
    """dFIL = tr(J'J)/(d·σ²) of each picture [B]; the trace as the mean of |J'v|² over random signs v (Hutchinson)."""
    x = x.detach().requires_grad_()
    z = edge(x)
    total = torch.zeros(len(x), dtype=torch.float64, device=x.device)
    for probe in range(PROBES):
        signs = torch.randint(0, 2, z.shape, generator=generator, device=z.device, dtype=z.dtype) * 2 - 1
        (gradient,) = torch.autograd.grad(z, x, signs, retain_graph=probe + 1 < PROBES)
        total += gradient.double().square().flatten(1).sum(1)
    return total / PROBES / (x[0].numel() * variance)


def gaussian_noise(model: SplitModel) -> tuple[float | Tensor, list[nn.Module]] | None:
    """Standard deviation of the declared Gaussian noise (one for all, or one for each value) and the defences that act
    before it; None where the bounds do not apply.

    What acts after the noise can only remove information (data processing).
    """
    before: list[nn.Module] = []
    for defence in model.defences.values():
        if isinstance(defence, Noise) and defence.idle:
            continue
        if isinstance(defence, Noise):
            scale = defence.scale()
            gaussian = defence.options.law == "gaussian"
            return (scale.detach() if isinstance(scale, Tensor) else scale, before) if gaussian else None
        if isinstance(defence, Cloak):  # what it suppresses, it suppresses after the noise
            return defence.scale().detach(), before
        if isinstance(defence, Fisher):
            return defence.noise_power() ** 0.5, before
        # the others act inside the edge half, or on the loss
        if not isinstance(defence, Defence) or type(defence).transmit is not Defence.transmit:
            before.append(defence)
    return None


def bounds(
    model: SplitModel, pictures: ImageSet, targets: ImageSet, generator: torch.Generator, input_entropy: float | None
) -> dict[str, Any]:
    """What audit.json says under `bound`, without the comparison with the attacks."""
    found = gaussian_noise(model)
    if found is None:
        by_manifest = model.manifest_defences and model.stated_noise()
        return {"available": False, "reason": UNREADABLE if by_manifest else NO_NOISE}
    scale, before = found
    z = transmitted(features(model.edge, pictures.images), before, generator)
    z = z / scale  # the noise now has variance 1
    dimension = targets.images[0].numel()
    # what acts before the noise may be random: its n draws tell more than one draw with less noise
    repeated = REPEATS if not before else REPEATS[:1]
    entropy: dict[str, Any] = {"holds_for": "every attacker, up to the estimate of the covariances", "repeats": {}}
    for repeats in repeated:
        information, covariance = information_bound(z, pictures.labels, 1 / repeats)
        entropy["covariance"] = covariance
        entropy["repeats"][str(repeats)] = {
            "information_nats": information,
            "factor": math.exp(-2 * information / dimension),
            "mse": None if input_entropy is None else entropy_bound(input_entropy, information, dimension),
        }
    entropy["note"] = (
        "H(x) is unknown for pictures: compare factors between models, not with errors."
        if input_entropy is None
        else f"Absolute, with the stated H(x) = {input_entropy:g} nats."
    )
    fisher: dict[str, Any] = {"holds_for": "unbiased attackers only; trained decoders are biased"}
    if not before:
        leakage = fisher_leakage(
            lambda x: model.edge(x.clone()) / scale,  # a copy: the edge half may work in place
            to_float(targets.images[:FISHER_PICTURES]),
            1.0,
            generator,
        )
        smallest = leakage.clamp_min(1e-12)  # a constant edge half leaks nothing: the bound is then above any picture's
        fisher |= {"dfil": float(leakage.mean()), "num_images": len(leakage)}
        fisher["repeats"] = {str(n): {"mse": float((1 / (n * smallest)).mean())} for n in REPEATS}
    sigma = float(torch.as_tensor(scale).square().mean().sqrt())
    return {"available": True, "sigma": sigma, "entropy": entropy, "fisher": fisher}


def compare_with_attacks(bound: dict[str, Any], attacks: dict[str, Any]) -> dict[str, Any]:
    """Add which attacks went below which bound. Below the absolute entropy bound is an alarm: something is broken."""
    if not bound.get("available"):
        return bound
    alarms, below_fisher = [], []
    for name, entry in attacks.items():
        repeats = entry.get("repeats", 1)
        highest = entry["mse_ci95"][1] if entry.get("mse_ci95") else entry["mse"]
        limit = _limit(bound["entropy"], repeats)
        if limit is not None and highest < limit:
            alarms.append(f"The attack '{name}' reached {entry['mse']:.3g}, below the proved bound {limit:.3g}.")
        limit = _limit(bound["fisher"], repeats)
        if limit is not None and highest < limit:
            below_fisher.append(name)
    return {**bound, "alarm": alarms, "fisher": {**bound["fisher"], "below": below_fisher}}


def _limit(kind: dict[str, Any], repeats: int) -> float | None:
    """The bound for the smallest listed number of transmissions that is not below `repeats`."""
    listed = {int(n): value["mse"] for n, value in kind.get("repeats", {}).items()}
    enough = [n for n in sorted(listed) if n >= repeats]
    return listed[enough[0]] if enough else None
