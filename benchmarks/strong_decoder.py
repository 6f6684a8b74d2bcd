"""`decoder_strong` against `decoder` of the same size on small models with different defences (CPU, about 20 minutes).

    python benchmarks/strong_decoder.py --out results/strong-decoder-cpu.json

The demo's recipe is trained with one defence after another, and every model is attacked by both. The bar: the strong
decoder is better on each. What is written after every model is kept, so that an interrupted run loses one at most.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import torch

import splitveil as sv
from splitveil.audit.tiers import CPU_DECODER
from splitveil.core.files import write_atomic
from splitveil.training.loaded_run import load_run

BOTTLENECK = {"bottleneck": {"channels": 8}}
MODELS: dict[str, dict[str, Any]] = {
    "noise .1": {"surrogate": {"name": "none"}},
    "gmm 1.25, noise .1": {},
    "sca, noise .025": {"surrogate": {"name": "none"}, "defence": {**BOTTLENECK, "sca": {}, "noise": {"sigma": 0.025}}},
    "adversarial .3, noise .01": {
        "surrogate": {"name": "none"},
        "defence": {
            **BOTTLENECK,
            "adversarial": {"weight": 0.3, "adversary_blocks": 1, "adversary_width": 16},
            "noise": {"sigma": 0.01},
        },
        "train": {"epochs": 6},
    },
    "topk .5, noise .025": {
        "surrogate": {"name": "none"},
        "defence": {**BOTTLENECK, "topk": {"p": 0.5}, "noise": {"sigma": 0.025}},
    },
}
SIZE = {**{key: CPU_DECODER[key] for key in ("batch_size", "lr")}, "blocks": 1, "width": 16, "epochs": 6}
ATTACKS = {
    "decoder": {**CPU_DECODER, **SIZE},
    "decoder_strong": {**SIZE, "kinds": ("shuffle", "dense"), "growths": 1, "seeds": 1},
}


def errors(changes: dict[str, Any], folder: Path, pictures: int) -> dict[str, Any]:
    """MSE of both attacks on the demo's model with these changes."""
    sv.train(sv.load_config("demo-fashion-mini", **changes), out=folder)
    run = load_run(folder)
    found = sv.audit(run.model, run.parts, attacks=ATTACKS, num_images=pictures, check_sanity=False).attacks
    plain, strong = found["decoder"]["mse"], found["decoder_strong"]["mse"]
    return {"decoder": round(plain, 5), "decoder_strong": round(strong, 5), "ratio": round(strong / plain, 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, default=1000, help="test pictures under attack")
    parser.add_argument("--out", type=Path, default=Path("strong-decoder-cpu.json"))
    options = parser.parse_args()
    results: dict[str, Any] = {
        "title": "The strong decoder against the plain one",
        "what": f"test MSE on {options.pictures} pictures of fashion-mini, tiny models, decoders of one size (1 block, "
        "16 channels, 6 epochs), one seed; decoder_strong races a convolutional and a dense one, grows once, and votes",
        "commands": [f"python benchmarks/strong_decoder.py --out results/{options.out.name}"],
        "hardware": f"CPU, torch {torch.__version__}",
        "models": {},
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, changes in MODELS.items():
            results["models"][name] = errors(changes, Path(folder) / name, options.pictures)
            write_atomic(options.out, json.dumps(results, indent=1) + "\n")
            print(name, results["models"][name], flush=True)


if __name__ == "__main__":
    main()
