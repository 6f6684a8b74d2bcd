"""How quickly the web app answers: a list of 10,000 runs, and slider moves of "what would leak?" for vgg11 at 32x32.

    python benchmarks/web_app.py [RUNS]

Works in a temporary folder. The weights and pictures are random: neither changes the time. The bar is 300 ms for a
slider move on a CPU; exit code 1 when the median misses it.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from starlette.testclient import TestClient

from splitveil.core.config import load_config
from splitveil.core.run_folder import RunFolder
from splitveil.core.toml import dump_toml
from splitveil.data import load
from splitveil.training.build import build_model
from splitveil.training.checkpoint import save_weights
from splitveil.web.app import create_app
from splitveil.web.index import Index, Query

MOVES, BAR = 25, 300.0
OURS = {"x-splitveil": "1"}


def many_runs(root: Path, count: int) -> None:
    """Run folders with everything that the list reads."""
    config = dump_toml({"data": {"name": "fashion-mini"}, "model": {"name": "tiny"}, "train": {"epochs": 20},
                        "surrogate": {"name": "gmm"}, "defence": {"noise": {"sigma": 0.1}}})  # fmt: skip
    rows = "".join(json.dumps({"epoch": n, "task_loss": 1 / n, "accuracy": 1 - 0.5 / n}) + "\n" for n in range(1, 21))
    for number in range(count):
        folder = root / f"sweep{number % 20:02d}" / f"run{number:05d}"
        folder.mkdir(parents=True)
        (folder / "config.toml").write_text(f"seed = {number}\n{config}", encoding="utf-8")
        (folder / "metrics.jsonl").write_text(rows, encoding="utf-8")
        (folder / "manifest.json").write_text('{"status": "finished"}', encoding="utf-8")
        result = {"accuracy_late": number * 37 % count / count}
        (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")


def vgg_run(root: Path, name: str, **defence: Any) -> None:
    """A vgg11 that nobody has trained, on random pictures."""
    random, pictures = np.random.default_rng(0), root.parent / "pictures.npz"
    if not pictures.exists():
        x, y = random.integers(0, 256, (4500, 32, 32, 3), dtype=np.uint8), np.arange(4500) % 10
        np.savez(pictures, train_x=x[:4000], train_y=y[:4000], test_x=x[4000:], test_y=y[4000:])
    config = load_config(data={"name": str(pictures)}, model={"name": "vgg11"}, defence=defence)
    folder = RunFolder(root / name)
    folder.write_config(config)
    model = build_model(config, load(config.data, config.seed).info)
    save_weights(folder.checkpoints / "model.safetensors", {"model": model})


def milliseconds(call: Any) -> float:
    began = time.perf_counter()
    call()
    return 1000 * (time.perf_counter() - began)


def lists(root: Path) -> None:
    index = Index(root)
    for what in ("first reading", "looking for changes"):
        print(f"{what:<28} {milliseconds(index.refresh) / 1000:8.2f} s")
    queries = {
        "newest first": Query(),
        "search": Query(text="run012 gmm"),
        "sorted, last page": Query(sort="accuracy", offset=10**6),
        "filtered": Query(status="finished", surrogate="gmm"),
    }
    for what, query in queries.items():
        times = [milliseconds(lambda query=query: index.page(query)) for _ in range(10)]
        print(f"{what:<28} {statistics.median(times):8.1f} ms")
    index.close()


def moves(client: TestClient, run: str) -> float:
    def facts() -> dict[str, Any]:
        return client.get("/api/leak/subject", params={"id": run}).json()

    def median() -> tuple[float, float]:
        def move(place: int) -> None:
            body = {"id": run, "test": 3, "sigma": highest * (place / MOVES) ** 3}
            client.post("/api/leak/look", json=body, headers=OURS).raise_for_status()

        times = [milliseconds(lambda place=place: move(place)) for place in range(MOVES)]
        return statistics.median(times), max(times)

    began = time.perf_counter()
    while facts()["state"] == "loading":
        time.sleep(0.05)
    highest = facts()["highest"]
    print(f"{run}: opened in {time.perf_counter() - began:.1f} s")
    print("  while the decoder trains     median {:.0f} ms, at most {:.0f} ms".format(*median()))
    while facts()["decoder"]["state"] in {"waiting", "training"}:
        time.sleep(0.5)
    middle, longest = median()
    print(f"  with both attackers          median {middle:.0f} ms, at most {longest:.0f} ms")
    return middle


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as folder:
        many, runs = Path(folder) / "many", Path(folder) / "runs"
        many_runs(many, count)
        lists(many)
        vgg_run(runs, "vgg11-bottleneck", bottleneck={"channels": 8}, noise={"sigma": 0.01})
        vgg_run(runs, "vgg11-wide", noise={"sigma": 0.01})
        with TestClient(create_app(runs), base_url="http://127.0.0.1") as client:
            while not client.get("/api/runs").json()["total"]:
                time.sleep(0.1)
            worst = max(moves(client, run) for run in ("vgg11-bottleneck", "vgg11-wide"))
    print(f"bar {BAR:.0f} ms: {'met' if worst < BAR else 'missed'}")
    return 0 if worst < BAR else 1


if __name__ == "__main__":
    sys.exit(main())
