"""Does a surrogate follow the conditional entropy? Write docs/entropy-tracking.md: each one that is registered, in both
modes, against the truth over the synthetic families.

python benchmarks/entropy_tracking.py [OUT]
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from entropy_families import CLASSES, DIM, Family, channel_entropy, families, sample, true_entropy
from scipy import stats

from splitveil import surrogates
from splitveil.core.catalogue import SURROGATES
from splitveil.core.files import write_atomic
from splitveil.surrogates import estimators

SIGMA = 0.1
BATCH = 128
TRACKS = 0.9  # least rank correlation that counts as tracking
STEADY = 0.1  # largest drift, as a share of the range over `scale`, that counts as steady
ALIVE = 0.1  # least sensitivity: below it a rank correlation is an accident of the samples


@dataclass(frozen=True)
class Method:
    """A row of the table: a surrogate in one mode, or an estimator."""

    label: str
    values: dict[str, list[float]]  # family -> one value per parameter
    entropy: Callable[[float, float], float] | None = None  # (value, H(Y)) -> estimate of H(z̃|Y) in nats, if it is one


def surrogate_value(name: str, mode: str, z: torch.Tensor, y: torch.Tensor, **extra: Any) -> float:
    """Mean loss over batches, parameters at their initialisation, after one refresh and one warming pass.

    Early shut-off is switched off where it exists, or the faithful version would be 0 for its first hundred calls.
    """
    options: dict[str, Any] = {"mode": mode, **extra}
    if "early_shut" in SURROGATES.load(name).Options.model_fields:
        options["early_shut"] = "off"
    torch.manual_seed(0)  # the same random initialisation at every parameter of a sweep
    shape = (DIM, 1, 1)  # eight channels, so that eight attention heads divide them
    surrogate = surrogates.create(name, feature_shape=shape, num_classes=CLASSES, sigma=SIGMA, **options)
    batches = [(z[i : i + BATCH].reshape(-1, *shape).float(), y[i : i + BATCH]) for i in range(0, len(z), BATCH)]
    surrogate.eval()
    surrogate.refresh(batches)
    surrogate.train()
    with torch.no_grad():
        for features, labels in batches:  # fills memories
            surrogate(features, labels, epoch=10)
        surrogate.eval()
        losses = [surrogate(features, labels, epoch=10).loss.item() for features, labels in batches]
    return sum(losses) / len(losses)


def measure(size: int = 2048) -> tuple[list[Method], dict[str, list[float]]]:
    """All methods over all families, and the true H(z̃|Y)."""
    sweeps = families()
    truth = {family.name: [true_entropy(family.law(p), SIGMA**2) for p in family.parameters] for family in sweeps}
    data = {family.name: [sample(family.law(p), size) for p in family.parameters] for family in sweeps}
    methods = []
    for name in surrogates.names():
        for mode in ("faithful", "corrected"):
            values = {key: [surrogate_value(name, mode, z, y) for z, y in sets] for key, sets in data.items()}
            # corrected losses are rates in nats per dimension; gmm adds the entropy of its weights and has its own row
            nats = (mode == "corrected" and name != "gmm") or name == "rate"
            methods.append(Method(f"{name}, {mode}", values, _from_rate if nats else None))
    if "gmm" in surrogates.names():
        whole = {"per_dim": False, "class_weight": "share"}
        values = {
            key: [surrogate_value("gmm", "corrected", z, y, **whole) for z, y in sets] for key, sets in data.items()
        }
        methods.append(Method("gmm, Theorem 2 bound", values, _from_bound))
    noise = SIGMA * torch.randn(size, DIM, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    for label, estimate in (
        ("k-NN estimate", lambda z, y: estimators.knn(z + noise, y)),
        ("Gaussian estimate", lambda z, y: estimators.gaussian(z, y, noise=SIGMA**2)),
        ("mixture bound", lambda z, y: estimators.mixture(z, y, noise=SIGMA**2)),
    ):
        values = {key: [estimate(z, y) for z, y in sets] for key, sets in data.items()}
        methods.append(Method(label, values, _as_it_is))
    return methods, truth


def score(method: Method, family: Family, truth: dict[str, list[float]]) -> float:
    """Spearman correlation with the truth; for a constant family the drift as a share of the range over `scale`.

    nan: the method does not move at all.
    """
    values = np.array(method.values[family.name])
    reach = np.ptp(method.values["scale"])
    if family.constant:
        return float(np.ptp(values) / reach) if reach > 0 else math.nan
    if np.ptp(values) <= 1e-6 * np.abs(values).max():
        return math.nan
    return float(stats.spearmanr(values, truth[family.name]).statistic)


def sensitivity(method: Method, family: Family, truth: dict[str, list[float]]) -> float:
    """How far the method moves over a family compared with the truth, both in units of their range over `scale`."""
    reach = np.ptp(method.values["scale"])
    if not reach > 0:
        return 0.0
    return float(np.ptp(method.values[family.name]) / reach * np.ptp(truth["scale"]) / np.ptp(truth[family.name]))


def fails(method: Method, truth: dict[str, list[float]]) -> list[str]:
    """The families on which the method does not follow the entropy."""
    names = []
    for family in families():
        value = score(method, family, truth)
        if family.constant:
            good = value <= STEADY  # nan is never good
        else:
            good = value >= TRACKS and sensitivity(method, family, truth) >= ALIVE
        if not good:
            names.append(family.name)
    return names


def bias(method: Method, family: Family, truth: dict[str, list[float]]) -> float:
    """Mean of estimate − truth of H(z̃|Y) over the sweep, nats per dimension."""
    assert method.entropy is not None
    total = 0.0
    for parameter, value, exact in zip(family.parameters, method.values[family.name], truth[family.name], strict=True):
        share = family.law(parameter).share
        total += method.entropy(value, -float(torch.special.xlogy(share, share).sum())) - exact
    return total / len(family.parameters) / DIM


INTRODUCTION = f"""\
# Which surrogates follow the entropy

Generated by `benchmarks/entropy_tracking.py`.

Ten families of features ({CLASSES} classes, {DIM} dimensions), nine values of one parameter each. The truth is H(z̃|Y)
of the noisy feature (sigma = {SIGMA}), in closed form or, for mixtures, as the mean of the exact log-density.
Surrogates have their parameters at initialisation, bank and memory filled, early shut-off off. A surrogate is a
training signal: a high rank correlation says that it moves with the entropy, not that it measures it.
"""

CORRELATION = f"""
## Spearman correlation with the truth

1 is perfect, 0 none, -1 inverted; `-` means that the value does not move at all. In brackets: the value moves less than
{ALIVE} as far as the truth (both in units of their range over `scale`), so that the correlation is an accident of the
samples. Last column: the entropy is constant there, and the number is the drift as a share of the method's range over
`scale` (0 is perfect).
"""

BIAS = """
## Bias

Estimate of H(z̃|Y) minus truth, nats per dimension, mean over the sweep, for methods that are in nats: a loss that is a
rate stands for D·loss + h(noise), the bound of the paper's Theorem 2 (gmm with `per_dim=False`) for
loss - H(Y) + h(noise). Upper bounds should be positive; the few samples of a batch pull them down.
"""

WORDS = f"""
## In words

Tracking means a correlation of at least {TRACKS} outside brackets (`shifted means`: a drift of at most {STEADY}).
Methods that weight all classes alike cannot see `imbalanced`, where only the frequencies move.
"""


def markdown(methods: list[Method], truth: dict[str, list[float]]) -> str:
    """The page: rank correlations, biases, and in words who does not track."""
    sweeps = families()
    head = ["", "| method | " + " | ".join(f.name for f in sweeps) + " |", "|---" * (len(sweeps) + 1) + "|"]
    in_nats = [m for m in methods if m.entropy is not None]
    lines = [
        INTRODUCTION,
        "| family | what moves | true H(z̃\\|Y), first to last |",
        "|---|---|---|",
        *(f"| {f.name} | {f.says} | {truth[f.name][0]:.2f} to {truth[f.name][-1]:.2f} |" for f in sweeps),
        CORRELATION.rstrip(),
        *head,
        *(f"| {m.label} | " + " | ".join(_cell(m, f, truth) for f in sweeps) + " |" for m in methods),
        BIAS.rstrip(),
        *head,
        *(f"| {m.label} | " + " | ".join(f"{bias(m, f, truth):+.3f}" for f in sweeps) + " |" for m in in_nats),
        WORDS,
        *(f"- **{m.label}**: {_verdict(fails(m, truth))}" for m in methods),
    ]
    return "\n".join(lines) + "\n"


def _from_rate(value: float, _: float) -> float:
    return DIM * value + channel_entropy(SIGMA**2)


def _from_bound(value: float, label_entropy: float) -> float:
    return value - label_entropy + channel_entropy(SIGMA**2)


def _as_it_is(value: float, _: float) -> float:
    return value


def _cell(method: Method, family: Family, truth: dict[str, list[float]]) -> str:
    value = score(method, family, truth)
    if math.isnan(value):
        return "-"
    blind = not family.constant and sensitivity(method, family, truth) < ALIVE
    return f"({value:.2f})" if blind else f"{value:.2f}"


def _verdict(failed: list[str]) -> str:
    if not failed:
        return "tracks the entropy on all ten families."
    if len(failed) == len(families()):
        return "does not track the entropy on any family."
    return f"does not track the entropy on {', '.join(failed)}; it does on the other {len(families()) - len(failed)}."


def main() -> None:
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("docs/entropy-tracking.md")
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(out, markdown(*measure()))
    print(f"wrote {out}")


if __name__ == "__main__":
    main()
