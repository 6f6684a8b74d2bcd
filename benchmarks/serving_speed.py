"""What serving costs: requests a second with and without batches, bytes for each picture, accuracy at 8 to 32 bits.

    python benchmarks/serving_speed.py [ARTEFACT] [--requests 600] [--clients 8]

Without ARTEFACT the demo recipe is trained (a minute on a CPU) and exported first. The server runs in a process of its
own on this machine, as `splitveil cloud`; the clients are threads with one connection each that send one picture a
request, features made beforehand. Speeds swing with the machine: only ratios of one run mean anything, so the ways are
measured in turn, several times, and the medians compared.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from splitveil.serving.artefact import Artefact, read
from splitveil.serving.exchange import INFER, artefact_id
from splitveil.serving.halves import CloudHalf, EdgeHalf
from splitveil.serving.random_inputs import SeededSource
from splitveil.serving.transport import HttpTransport
from splitveil.serving.wire import Kind, decode, encode

BITS = (32, 16, 8)
ROUNDS = 7
PER_MESSAGE = 64  # as the client sends them: 8 bits share a scale within a message


def demo_artefact(folder: Path) -> Artefact:
    """The demo recipe, trained and exported."""
    import splitveil as sv

    run = sv.train(sv.load_config("demo-fashion-mini"), out=folder / "run", device="cpu")
    sv.export(run.path, folder / "artefact")
    return read(folder / "artefact")


def accuracies(artefact: Artefact) -> dict[str, Any]:
    """On all test pictures of the recipe, with the same noise for every width: the differences are paired."""
    import splitveil as sv

    test = sv.data.create(artefact.manifest.data["name"]).test
    pictures, labels = test.images.numpy().astype(np.float32) / np.float32(255), test.labels.numpy()
    sent = EdgeHalf(artefact).features(pictures, SeededSource(0))
    half, name = CloudHalf(artefact), artefact_id(artefact)
    right: dict[int, np.ndarray[Any, Any]] = {}
    sizes: dict[int, float] = {}
    for bits in BITS:
        parts = [sent[start : start + PER_MESSAGE] for start in range(0, len(sent), PER_MESSAGE)]
        messages = [encode(Kind.FEATURES, part, artefact=name, request=0, bits=bits) for part in parts]
        logits = np.concatenate([half.logits(decode(message).values) for message in messages])
        right[bits] = logits.argmax(1) == labels
        sizes[bits] = sum(map(len, messages)) / len(sent)
    found: dict[str, Any] = {"test_pictures": len(labels), "picture_bytes": math.prod(artefact.manifest.input.shape)}
    for bits in BITS:
        lost = right[32].astype(float) - right[bits]
        found[f"{bits}_bits"] = {
            "bytes_per_picture": round(sizes[bits], 1),
            "accuracy": round(float(right[bits].mean()), 4),
            "accuracy_lost": round(float(lost.mean()), 5),
            "standard_error": round(float(lost.std() / math.sqrt(len(lost))), 5),
        }
    return found


@contextmanager
def server(artefact: Artefact, *options: str) -> Iterator[str]:
    """`splitveil cloud` in a process of its own; its address."""
    command = [sys.executable, "-m", "splitveil", "cloud", str(artefact.path), "--port", "0", *options]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            found = re.match(r"http://[\w.]+:\d+", process.stdout.readline())
            assert found is not None, "the server did not start"
            yield found[0]
        finally:
            process.kill()


def rate(address: str, messages: list[bytes], clients: int) -> float:
    """Requests a second, all clients together."""
    shares = [messages[number::clients] for number in range(clients)]
    ready = threading.Barrier(clients + 1)

    def work(share: list[bytes]) -> None:
        transport = HttpTransport(address)
        transport.request("GET", "/healthz")
        ready.wait()
        for message in share:
            assert transport.request("POST", INFER, message).status == 200
        transport.close()

    threads = [threading.Thread(target=work, args=(share,)) for share in shares]
    for thread in threads:
        thread.start()
    ready.wait()
    began = time.monotonic()
    for thread in threads:
        thread.join()
    return len(messages) / (time.monotonic() - began)


def network_ratio(artefact: Artefact, features: np.ndarray[Any, Any]) -> float:
    """How many times faster the network itself is for 64 pictures at once than one by one."""
    half = CloudHalf(artefact)
    some = features[:64]
    half.logits(some)
    seconds: dict[str, list[float]] = {"one": [], "all": []}
    for _ in range(31):  # each takes milliseconds
        began = time.monotonic()
        for row in range(len(some)):
            half.logits(some[row : row + 1])
        seconds["one"].append(time.monotonic() - began)
        began = time.monotonic()
        half.logits(some)
        seconds["all"].append(time.monotonic() - began)
    return statistics.median(seconds["one"]) / statistics.median(seconds["all"])


def speeds(artefact: Artefact, requests: int, clients: int) -> dict[str, Any]:
    """Batches against one by one, through HTTP; and the network alone."""
    random = np.random.default_rng(0).random((requests, *artefact.manifest.input.shape), dtype=np.float32)
    features = EdgeHalf(artefact).features(random)
    name = artefact_id(artefact)
    messages = [
        encode(Kind.FEATURES, features[row : row + 1], artefact=name, request=row) for row in range(len(features))
    ]
    ways = {"one_by_one": ("--max-batch", "1"), "batches": (), "batches_wait_2_ms": ("--max-wait-ms", "2")}
    found: dict[str, list[float]] = {way: [] for way in ways}
    with ExitStack() as stack:
        addresses = {way: stack.enter_context(server(artefact, *options)) for way, options in ways.items()}
        for address in addresses.values():
            rate(address, messages[: 4 * clients], clients)  # warm
        for _ in range(ROUNDS):
            for way, address in addresses.items():
                found[way].append(rate(address, messages, clients))
    medians = {way: statistics.median(values) for way, values in found.items()}
    return {
        "clients": clients,
        "requests_per_second": {way: round(value) for way, value in medians.items()},
        "batches_over_one_by_one": round(medians["batches"] / medians["one_by_one"], 2),
        "batches_wait_2_ms_over_one_by_one": round(medians["batches_wait_2_ms"] / medians["one_by_one"], 2),
        "network_64_at_once_over_one_by_one": round(network_ratio(artefact, features), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("artefact", nargs="?", type=Path)
    parser.add_argument("--requests", type=int, default=600)
    parser.add_argument("--clients", type=int, default=8)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        artefact = demo_artefact(Path(folder)) if options.artefact is None else read(options.artefact)
        result = {
            "model": artefact.manifest.model,
            "feature": list(artefact.manifest.feature.shape),
            **speeds(artefact, options.requests, options.clients),
            **accuracies(artefact),
        }
        print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
