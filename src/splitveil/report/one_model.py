"""Several audits of one model: only the one that found most counts.

A run, its exported artefact and an endpoint that serves it are one model, and one artefact may be audited twice, or a
run on other pictures. So are a run and its copy, or its repetition with the same seed. A mean over such audits, or a
choice of the mildest, would let a weak audit speak for the model, and a copy pass for another seed.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace

from splitveil.experiments.loose import table, text
from splitveil.report.run import Run

_DIGEST = re.compile(r"\|(?:artefact|endpoint):([0-9a-f]+)")
_WEIGHTS = re.compile(r"\|model:[0-9a-f]+")


def mark_kin(runs: list[Run]) -> list[Run]:
    """The same runs in the same order; those of one model share a `family`, and all but the strongest are `weaker`.

    What only one of them knows of the model (an endpoint does not tell its recipe) is told to the others.
    """
    marked = list(runs)
    for number, places in enumerate(_families(runs)):
        members = [runs[place] for place in places]
        teller = next((run for run in members if run.config), None) or next(
            (run for run in members if run.states_defences), members[0]
        )
        audited = [run for run in members if run.audit.leak.known]
        strongest = min(audited, key=_leak, default=None)
        for place in places:
            run = runs[place]
            marked[place] = replace(
                run,
                family=number,
                weaker=strongest is not None and run is not strongest,
                config=run.config or teller.config,
                about=teller.about | run.about if run.audit_only else run.about,
            )
    return marked


def _leak(run: Run) -> tuple[float, float]:
    """Sorts the worst leak first: lowest MSE, then highest SSIM."""
    leak = run.audit.leak
    return (leak.mse if leak.mse is not None else float("inf"), -(leak.ssim or 0.0))


def _families(runs: list[Run]) -> list[list[int]]:
    """Places of runs that share a key, directly or through others; a run without kin is in no family."""
    apart = [run for run in runs if run.about.get("kind") == "run" or _DIGEST.search(run.audit.signature or "")]
    elsewhere = {_origin(run) for run in apart}
    found: list[tuple[set[str], list[int]]] = []
    for place, run in enumerate(runs):
        keys, places = _keys(run, elsewhere), [place]
        for other in [one for one in found if one[0] & keys]:
            found.remove(other)
            keys, places = keys | other[0], other[1] + places
        found.append((keys, places))
    return [sorted(places) for _, places in found if len(places) > 1]


def _keys(run: Run, elsewhere: set[str | None]) -> set[str]:
    """What pins the model: its artefact, the run that was exported or attacked on other pictures, code and weights of a
    model of one's own, or settings, seed and pictures of a finished run."""
    signature, origin = run.audit.signature or "", _origin(run)
    digest, weights = _DIGEST.search(signature), _WEIGHTS.search(signature)
    keys = {f"artefact {digest[1]}"} if digest else set()
    if origin is not None and origin in elsewhere:
        keys.add(f"run {origin}")
    if origin is None and "|code:" in signature and weights:
        keys.add(f"own {_before_audit(signature)}{weights[0]}")
    if run.result and not run.unfinished and run.seed is not None:
        pictures = text(table(run.manifest.get("data")).get("checksum"))
        keys.add(f"repeated {json.dumps([run.config, run.seed, pictures], sort_keys=True, default=str)}")
    return keys


def _origin(run: Run) -> str | None:
    """Signature of the run behind an audit; one without a configuration pins nothing."""
    start = _DIGEST.split(_before_audit(run.audit.signature or ""))[0]
    return start if "|config:" in start else None


def _before_audit(signature: str) -> str:
    return signature.partition("|audit|")[0]
