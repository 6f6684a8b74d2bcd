"""Audits of artefacts and endpoints: what they are, several of one model, and whose the accuracy is."""

from __future__ import annotations

import itertools
import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from splitveil.report.method import Method
from splitveil.report.methods import group_runs
from splitveil.report.run_files import read_run
from splitveil.report.verdict import judge

DIGEST, OTHER = "ab" * 32, "cd" * 32
ORIGIN = "splitveil:0.1.0|config:3fa9c21b07|seed:125|data:91bd03aa|torch:2.13.0"
OWN = "splitveil:0.1.0|own:own|torch:2.13.0"
Served = Callable[..., Path]


@pytest.fixture
def served(tmp_path: Path, write_run: Callable[..., Path]) -> Served:
    """A folder with nothing but the audit of an artefact or an endpoint, as `splitveil audit --out` leaves it."""

    def make(
        name: str,
        *,
        kind: str = "artefact",
        digest: str = DIGEST,
        recipe: bool = True,
        defences: list[dict[str, Any]] | None = None,
        attacks_pin: str = "60335992",
        accuracy: float = 0.85,
        facts: bool = True,
        **options: Any,
    ) -> Path:
        folder = write_run(tmp_path / name, **options)
        config = tomllib.loads((folder / "config.toml").read_text())
        for file in ("config.toml", "manifest.json", "result.json", "metrics.jsonl"):
            (folder / file).unlink()
        path = folder / "audit" / "audit.json"
        tree = json.loads(path.read_text())
        origin = f"{ORIGIN if recipe else OWN}|artefact:{digest[:10]}"
        if kind == "endpoint":
            origin = f"splitveil:0.1.0|endpoint:{digest[:10]}|torch:2.13.0"
        tree |= {"signature": f"{origin}|audit|tier:smoke|attacks:{attacks_pin}", "accuracy": accuracy}
        tree |= {"data": "fashion-mini", "accuracy_of": "auditor" if kind == "endpoint" else "model"}
        about: dict[str, Any] = {"kind": kind, "artefact": digest}
        if kind == "artefact":
            said = [{"name": key, "options": value} for key, value in config["defence"].items()]
            about |= {
                "signature": ORIGIN if recipe else OWN,
                "seed": config["seed"] if recipe else None,
                "data": {"name": "fashion-mini", "checksum": "91bd03aa55"} if recipe else {"checksum": "77"},
                "model": "tiny" if recipe else "own",
                "cut": 2 if recipe else None,
                "surrogate": config.get("surrogate", {}).get("name") if recipe else None,
                "defences": said if defences is None else defences,
                "config": config if recipe else None,
            }
        path.write_text(json.dumps(tree | ({"about": about} if facts else {})))
        return folder

    return make


def grouped(*folders: Path) -> list[Method]:
    return group_runs([read_run(folder) for folder in folders])


def told(*folders: Path) -> list[str]:
    return [caveat.en for caveat in judge(grouped(*folders)).caveats]


@pytest.mark.parametrize("facts", [True, False], ids=["now", "audits of earlier versions"])
def test_two_audits_of_one_artefact_are_one_method_and_the_stronger_counts(served: Served, facts: bool) -> None:
    weak = served("wk", mse=0.0188, attacks_pin="981b37d8", facts=facts)
    strong = served("st", mse=0.0131, facts=facts)
    (method,) = grouped(weak, strong)
    assert [run.name for run in method.counted] == ["st"]
    assert method.leak.mse == 0.0131
    assert judge([method]).defended == 1
    assert told(weak, strong)[0] == (
        "One model was audited 2 times (wk, st): only the audit that found most, st, counts. A weaker audit says "
        "nothing for the model."
    )


def test_audits_of_one_model_on_different_pictures_are_said_not_to_compare(served: Served) -> None:
    """The scores of dark pictures are small, whatever leaked."""
    own, other = served("own", mse=0.0188), served("other", mse=0.0131)
    assert "different pictures" not in " ".join(told(own, other))
    path = other / "audit" / "audit.json"
    tree = json.loads(path.read_text())
    tree["floors"]["mean_image"]["mse"] = 0.0222
    path.write_text(json.dumps(tree | {"data": "photos"}))
    assert judge(grouped(own, other)).floor.mse == 0.0222  # of the pictures that the counted audit attacked
    assert told(own, other)[1] == (
        "These audits of one model attacked different pictures (fashion-mini, photos), on which scores do not compare: "
        "read each beside what guessing the mean picture scores in its own audit."
    )


def test_models_of_which_nothing_is_known_are_not_called_defended(served: Served, build: Callable[..., Any]) -> None:
    """Of a device behind an address nobody says how it is defended, if at all."""
    one, other = (
        served(name, kind="endpoint", digest=name * 32, mse=mse) for name, mse in (("a1", 0.02), ("b2", 0.03))
    )
    said = build(one, other).text("which")
    assert "which leaks least of 2 models; what defends each of them is not known here." in said
    assert "safest" not in said


def test_the_page_does_not_crown_the_weaker_audit(served: Served, build: Callable[..., Any]) -> None:
    page = build(served("wk", mse=0.0188), served("st", mse=0.0131))
    assert "safest" not in page.text("which")
    assert "0.0131" in page.text("verdict")
    assert "0.0188" not in page.text("verdict")
    assert "wk weaker audit" in page.text("numbers").replace("wkweaker", "wk weaker")
    assert "strongest of 2" in page.text("numbers")
    assert not page.faults


def test_a_run_its_artefact_and_its_endpoint_are_one_model(
    tmp_path: Path, served: Served, write_run: Callable[..., Path]
) -> None:
    run = write_run(tmp_path / "mine", mse=0.0130, accuracy=0.849)
    path = run / "audit" / "audit.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"signature": f"{ORIGIN}|audit|tier:smoke"}))
    artefact = served("audit-mine", mse=0.0131)
    endpoint = served("audit-endpoint", kind="endpoint", mse=0.0120, accuracy=0.81)
    for folders in itertools.permutations([run, artefact, endpoint]):  # only the artefact knows both others
        (method,) = grouped(*folders)
        assert [run.name for run in method.counted] == ["audit-endpoint"]
        assert method.accuracy == 0.849, "the run's own, not that of the auditor's classifier"
        assert not method.auditors_accuracy
        assert method.label.en == "gmm (corrected), weight 16, noise 0.025"
        assert method.spread(method.accuracy_of) is None


def test_the_artefacts_accuracy_goes_before_the_auditors(served: Served) -> None:
    endpoint = served("e", kind="endpoint", mse=0.01, accuracy=0.81)
    (method,) = grouped(endpoint, served("a", mse=0.02, accuracy=0.85))
    assert [run.name for run in method.counted] == ["e"]
    assert method.accuracy == 0.85
    assert not method.auditors_accuracy


def test_other_artefacts_and_other_seeds_stay_apart(
    tmp_path: Path, served: Served, write_run: Callable[..., Path]
) -> None:
    one, two = served("one", recipe=False), served("two", recipe=False, digest=OTHER)
    assert len(grouped(one, two)) == 2, "all models of one's own share a signature, which pins nothing"
    runs = [write_run(tmp_path / f"s{seed}", seed=seed) for seed in (1, 2)]
    (method,) = grouped(*runs)
    assert len(method.counted) == 2


def signed(folder: Path, signature: str) -> Path:
    path = folder / "audit" / "audit.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"signature": signature}))
    return folder


def test_runs_that_were_never_exported_are_not_merged(tmp_path: Path, write_run: Callable[..., Path]) -> None:
    runs = [
        signed(write_run(tmp_path / name, epochs=epochs), f"{ORIGIN}|audit|") for name, epochs in (("a", 1), ("b", 2))
    ]
    assert len(grouped(*runs)) == 2


def test_copies_of_a_run_are_no_further_seeds(
    tmp_path: Path, write_run: Callable[..., Path], build: Callable[..., Any]
) -> None:
    copies = [write_run(tmp_path / name, mse=mse) for name, mse in (("a", 0.03), ("b", 0.02), ("c", 0.03))]
    (method,) = grouped(*copies)
    assert [run.name for run in method.counted] == ["b"]
    assert any(sentence.startswith("One model was audited 3 times (a, b, c)") for sentence in told(*copies))
    assert any(sentence.startswith("One seed") for sentence in told(*copies))
    assert "seeds" not in build(*copies).text("verdict")
    (method,) = grouped(*copies, write_run(tmp_path / "d", seed=126))
    assert [run.name for run in method.counted] == ["b", "d"]


def test_runs_on_other_pictures_of_the_same_name_are_no_copies(tmp_path: Path, write_run: Callable[..., Path]) -> None:
    runs = [write_run(tmp_path / name) for name in "ab"]
    path = runs[0] / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"data": {"name": "fashion-mini", "checksum": "77"}}))
    (method,) = grouped(*runs)
    assert len(method.counted) == 2


@pytest.mark.parametrize(("weights", "models"), [("aa11", 1), ("bb22", 2)])
def test_two_audits_of_a_model_of_ones_own(served: Served, weights: str, models: int) -> None:
    """Code and weights pin it; another state of the same code is another model."""
    own = "splitveil:0.1.0|own:Net|code:0123456789|at:layer1|torch:2.13.0|audit|tier:smoke|model:"
    one = signed(served("one", facts=False, mse=0.03), f"{own}aa11|attacks:1")
    two = signed(served("two", facts=False, mse=0.02), f"{own}{weights}|attacks:2")
    methods = grouped(one, two)
    assert len(methods) == models
    assert min(method.leak.mse or 1.0 for method in methods) == 0.02
    assert [run.name for method in methods for run in method.counted] == (["two"] if models == 1 else ["one", "two"])


def test_an_attack_of_the_weaker_audit_is_still_shown(served: Served, build: Callable[..., Any]) -> None:
    page = build(served("wk", mse=0.03, attacks=("prior",)), served("st", mse=0.02, attacks=("decoder",)))
    assert "0.0306" in page.text("numbers"), "1.02 times the worst case, as the made-up audit has it"


def test_an_artefact_without_defences_is_undefended(served: Served, build: Callable[..., Any]) -> None:
    bare = served("audit-bn", recipe=False, digest=OTHER, defences=[], mse=0.01)
    defended = served("st")
    first, second = grouped(bare, defended)
    assert first.undefended
    assert first.label.en == "undefended"
    assert not second.undefended
    assert judge([first, second]).defended == 1
    assert not any("No undefended run" in text for text in told(bare, defended))
    assert "safest" not in build(bare, defended).text("which")


def test_an_undefended_model_of_another_network_is_told_as_such(
    tmp_path: Path, served: Served, write_run: Callable[..., Path]
) -> None:
    bare, defended = served("bn", recipe=False, digest=OTHER, defences=[], mse=0.01), served("st")
    sentence = "The undefended model is another network (own, where the headline has tiny)"
    assert any(text.startswith(sentence) for text in told(bare, defended))
    same = write_run(tmp_path / "undefended", surrogate=None, sigma=0.0, mse=0.01)
    assert not any("another network" in text for text in told(same, defended))


def test_of_two_without_defences_none_is_called_defended(served: Served) -> None:
    one = served("one", recipe=False, defences=[])
    two = served("two", recipe=False, digest=OTHER, defences=[])
    assert judge(grouped(one, two)).defended == 0


def test_an_artefact_without_recipe_is_labelled_by_its_manifest(served: Served) -> None:
    noisy = [{"name": "noise", "options": {"sigma": 0.3}}, {"name": "nopeek", "options": {"weight": 0.5}}]
    (method,) = grouped(served("one", recipe=False, defences=noisy))
    assert method.label.en == "nopeek 0.5, noise 0.3"
    assert not method.undefended


def test_an_endpoint_alone_is_neither_defended_nor_not(served: Served) -> None:
    (method,) = grouped(served("e", kind="endpoint"))
    assert not method.undefended
    assert method.label.en == "e"


def test_the_page_tells_what_the_artefact_is(served: Served, build: Callable[..., Any]) -> None:
    page = build(served("audit-mine"))
    assert "gmm (corrected), weight 16, noise 0.025" in page.text("which")
    origin = page.text("facts")
    for fact in (ORIGIN, DIGEST, "125", "fashion-mini 91bd03aa55", "tiny, cut 2", "gmm", "bottleneck, noise"):
        assert fact in origin, fact
    notes = page.text("notes")
    assert "did not train" not in notes
    assert "the audit of an exported artefact" in notes
    commands = page.text("command")
    assert "splitveil train" not in commands, "the folder holds no recipe"
    assert "splitveil audit ARTEFACT --out" in commands


def test_an_audit_alone_claims_nothing_about_who_trained(served: Served, build: Callable[..., Any]) -> None:
    notes = build(served("old", facts=False)).text("notes")
    assert "did not train" not in notes
    assert "settings of the model are not known" in notes


@pytest.mark.parametrize("facts", [True, False], ids=["now", "audits of earlier versions"])
def test_the_accuracy_of_an_endpoint_is_named_as_the_auditors(
    served: Served, build: Callable[..., Any], facts: bool
) -> None:
    folder = served("e", kind="endpoint", accuracy=0.81, facts=facts)
    if not facts:
        path = folder / "audit" / "audit.json"
        tree = json.loads(path.read_text())
        del tree["accuracy_of"]
        path.write_text(json.dumps(tree))
    page = build(folder)
    assert "At 81.0 % accuracy" not in page.text("verdict")
    assert "The auditor's own classifier reaches 81.0 % accuracy" in page.text("verdict")
    assert "审计者自己的分类器" in page.text("verdict", lang="zh")
    assert "auditor's classifier" in page.text("tiles")
    assert "auditor's classifier" in page.text("numbers")
    assert "does not tell its settings" in page.text("notes")
    assert any("auditor" in caveat and "not known" in caveat for caveat in told(folder))


@pytest.mark.parametrize(
    "about",
    [
        "text",
        {"kind": 3, "artefact": []},
        {"kind": "artefact", "defences": "noise", "config": []},
        {"kind": "artefact", "defences": [1, {"options": 2}, {"name": "noise", "options": []}], "data": 7},
    ],
)
def test_nonsense_about_an_artefact_breaks_nothing(served: Served, build: Callable[..., Any], about: object) -> None:
    folder = served("odd")
    path = folder / "audit" / "audit.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"about": about}))
    assert not build(folder).faults


def test_endpoints_are_not_expensive_beside_each_other(served: Served) -> None:
    """Nobody knows what their accuracies were measured on."""
    one = served("a", kind="endpoint", digest="a" * 64, accuracy=0.9, mse=0.01)
    other = served("b", kind="endpoint", digest="b" * 64, accuracy=0.6, mse=0.05)
    verdict = judge(grouped(one, other))
    assert (verdict.cheap, verdict.defended) == (2, 2)
