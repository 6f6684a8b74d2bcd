"""Every example runs, and its result lies between two bounds: too good is as suspicious as too bad.

An example takes no arguments and prints one line of JSON last. A new file in examples/ is run by this test; give it
bounds below. The bounds are wider than the spread over seeds that was seen when an example was written.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.loaded_process import run_script

EXAMPLES = Path(__file__).parents[2] / "examples"
NEEDS = {"lightning_module.py": "lightning", "huggingface_trainer.py": "transformers"}
BOUNDS: dict[str, dict[str, tuple[float, float]]] = {
    "plain_loop.py": {
        "accuracy_plain": (0.75, 0.90),
        "accuracy": (0.70, 0.86),
        "within_class_ratio": (0.08, 0.40),
    },
    "own_surrogate.py": {"accuracy": (0.88, 0.999), "within_class_ratio": (0.15, 0.75)},
    "audit_any_model.py": {
        "mse_bare": (0.002, 0.015),
        "mse_noisy": (0.015, 0.045),
        "mse_mean_image": (0.08, 0.10),
    },
    "lightning_module.py": {"accuracy": (0.62, 0.80), "within_class_ratio": (0.25, 0.70)},
    "huggingface_trainer.py": {"accuracy": (0.62, 0.80), "within_class_ratio": (0.25, 0.75)},
}


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_example(path: Path, tmp_path: Path) -> None:
    needed = NEEDS.get(path.name)
    if needed is not None and find_spec(needed) is None:
        pytest.skip(f"needs {needed}")
    assert path.name in BOUNDS, "give the new example bounds in this file"
    done = run_script(path, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result.keys() == BOUNDS[path.name].keys()
    for name, (low, high) in BOUNDS[path.name].items():
        assert low < result[name] < high, (name, result)
    assert list(tmp_path.iterdir()) == []  # an example leaves nothing behind


def test_no_bounds_without_an_example() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == BOUNDS.keys()


def test_the_plain_loop_fits_on_a_page() -> None:
    assert len((EXAMPLES / "plain_loop.py").read_text().splitlines()) <= 60
