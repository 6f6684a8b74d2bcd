"""Reading an artefact: what is whole is read, and every damage is one sentence."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.worlds.small_artefact import NOISE, PICK, write_small_artefact

from splitveil.core.errors import ArtefactError, NotAnArtefactError
from splitveil.serving.artefact import Artefact, is_artefact, read
from splitveil.serving.manifest import FILES, Manifest


def test_what_was_written_is_read(tmp_path: Path) -> None:
    manifest = write_small_artefact(tmp_path)
    artefact = read(tmp_path)
    assert artefact.manifest == manifest
    assert artefact.digest == written_by_hand(tmp_path)
    assert artefact.load("config.toml") == b"seed = 0\n"
    assert is_artefact(tmp_path)
    assert manifest.class_name(1) == "boot"
    assert manifest.class_name(7) == "7"


def written_by_hand(folder: Path) -> bytes:
    """The digest as docs/serving.md describes it, from the text of the manifest."""
    tree = json.loads((folder / "manifest.json").read_text())
    names = sorted(["version", "files", "input", "feature", "num_classes", "class_names", "random"])
    said = ",".join(f'"{name}":' + json.dumps(tree[name], sort_keys=True, separators=(",", ":")) for name in names)
    return hashlib.sha256(f"{{{said}}}".encode()).digest()


def test_when_it_was_made_and_what_was_measured_do_not_name_another_artefact(tmp_path: Path) -> None:
    """A device and a server that were given exports of one run understand each other."""
    measured = {"pictures": 256, "feature_difference": 0, "beyond_tolerance": 0, "logit_difference": 0}
    measured |= {"same_label": 1, "accuracy_pictures": 2000}
    digests = set()
    for place, accuracy in (("one", 0.852), ("other", 0.853)):
        checks = measured | {"accuracy": accuracy}
        write_small_artefact(tmp_path / place, created=place, accuracy=0.85, checks=checks)
        digests.add(read(tmp_path / place).digest)
    assert len(digests) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"random": (NOISE,)},
        {"random": (NOISE.model_copy(update={"law": "uniform"}), PICK)},
        {"num_classes": 4, "class_names": ()},
        {"class_names": ("boot", "bag", "coat")},
        {"feature": {"shape": (2,)}},
        {"input": {"shape": (1, 4, 4), "mean": (0.5,), "std": (0.5,)}},
    ],
)
def test_what_changes_the_answers_names_another_artefact(tmp_path: Path, change: dict[str, Any]) -> None:
    write_small_artefact(tmp_path / "one")
    write_small_artefact(tmp_path / "other", **change)
    assert read(tmp_path / "one").digest != read(tmp_path / "other").digest


def test_another_file_names_another_artefact(small_artefact: Artefact) -> None:
    for name in FILES:
        files = small_artefact.manifest.files | {name: "0" * 64}
        assert small_artefact.manifest.model_copy(update={"files": files}).identity() != small_artefact.digest


@pytest.mark.parametrize("name", FILES)
def test_one_changed_byte_is_noticed(small_artefact: Artefact, name: str) -> None:
    path = small_artefact.path / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    for need in (None, [], ["edge.onnx"]):  # what is there must be what the manifest says, whoever asks for it
        with pytest.raises(ArtefactError, match=f"{name} is damaged"):
            read(small_artefact.path, need=need)
    with pytest.raises(ArtefactError, match=f"{name} is damaged"):  # also after it was read
        small_artefact.load(name)


def test_a_device_and_a_server_hold_only_their_own_half(small_artefact: Artefact) -> None:
    for name in ("cloud.onnx", "model.safetensors", "config.toml"):
        (small_artefact.path / name).unlink()
    assert read(small_artefact.path, need=["edge.onnx"]).has("edge.onnx")
    with pytest.raises(ArtefactError, match=r"has no cloud.onnx"):
        read(small_artefact.path, need=["cloud.onnx"])
    with pytest.raises(ArtefactError, match=r"has no cloud.onnx"):
        read(small_artefact.path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "is of version 2; this Splitveil reads version 1"),
        ({"version": None}, "is of version None"),
        ({"opset": "many"}, "damaged: opset: "),
        ({"surprise": 1}, "damaged: surprise: extra inputs are not permitted"),
        ({"files": {"edge.onnx": "0"}}, "damaged: files: it must name edge.onnx, cloud.onnx"),
        ({"files": {"edge.onnx": "0", "cloud.onnx": "0", "../../secret": "0"}}, "and nothing else but"),
        ({"class_names": ["one"]}, "1 names for 3 classes"),
        ({"random": [{"name": "k", "law": "integers", "shape": []}]}, "integers have an upper bound"),
        ({"random": [{"name": "k", "law": "normal", "shape": [], "high": 3}]}, "integers have an upper bound"),
        ({"random": [{"name": "k", "law": "cauchy", "shape": []}]}, "damaged: random.0.law: "),
        ({"random": [{"name": "k", "law": "normal", "shape": [-1]}]}, "negative"),
        ({"random": [NOISE.model_dump(), NOISE.model_dump()]}, "two inputs have one name"),
        ({"num_classes": 0}, "damaged: num_classes: "),
        ({"accuracy": float("nan")}, "damaged: accuracy: "),
    ],
)
def test_a_changed_manifest_is_one_sentence(small_artefact: Artefact, change: dict[str, Any], message: str) -> None:
    path = small_artefact.path / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ArtefactError) as error:
        read(small_artefact.path)
    assert message in error.value.message
    assert "\n" not in str(error.value)
    assert not isinstance(error.value, NotAnArtefactError)
    assert error.value.hint


RECIPE = """seed = 0

[defence.bottleneck]
channels = 8

[defence.noise]
sigma = 0.1
law = "gaussian"
"""
CHAIN = [
    {"name": "bottleneck", "options": {"channels": 8, "kernel": None}},
    {"name": "noise", "options": {"sigma": 0.1, "law": "gaussian"}},
]


def with_recipe(folder: Path, defences: list[dict[str, Any]]) -> None:
    write_small_artefact(folder)
    (folder / "config.toml").write_text(RECIPE)
    files = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in FILES}
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"defences": defences, "files": files}))


def test_defences_are_those_of_the_recipe(tmp_path: Path) -> None:
    with_recipe(tmp_path, CHAIN)
    assert [one.name for one in read(tmp_path).manifest.defences] == ["bottleneck", "noise"]


@pytest.mark.parametrize(
    ("defences", "says"),
    [
        ([CHAIN[0], {"name": "noise", "options": {"sigma": 9.9, "law": "gaussian"}}], "noise.sigma = 9.9 where config"),
        ([CHAIN[0], {"name": "noise", "options": {"sigma": 0.1}}], "noise.law = None where config.toml has gaussian"),
        ([CHAIN[0], {"name": "noise", "options": CHAIN[1]["options"] | {"more": 1}}], "noise.more = 1"),
        ([CHAIN[1]], "the defences noise where config.toml has bottleneck, noise"),
        ([], "the defences none where"),
        (CHAIN[::-1], "the defences noise, bottleneck where"),
        ([*CHAIN, {"name": "dropout"}], "bottleneck, noise, dropout where"),
    ],
)
def test_a_manifest_that_boasts_of_other_defences(tmp_path: Path, defences: list[Any], says: str) -> None:
    with_recipe(tmp_path, defences)
    for need in (None, ["edge.onnx"], ["cloud.onnx"]):
        with pytest.raises(ArtefactError) as error:
            read(tmp_path, need=need)
        assert says in error.value.message
        assert "contradicts itself" in error.value.message
    (tmp_path / "config.toml").unlink()  # a device's copy: nothing to compare with
    assert read(tmp_path, need=["edge.onnx"]).has("edge.onnx")


def test_a_recipe_that_is_none(tmp_path: Path) -> None:
    manifest = write_small_artefact(tmp_path)
    (tmp_path / "config.toml").write_text("[")
    files = manifest.files | {"config.toml": hashlib.sha256(b"[").hexdigest()}
    (tmp_path / "manifest.json").write_text(manifest.model_copy(update={"files": files}).to_json())
    with pytest.raises(ArtefactError, match=r"config.toml is no recipe"):
        read(tmp_path)


@pytest.mark.parametrize(("stated", "good"), [(0.852, True), (0.80, True), (0.999, False), (0.70, False)])
def test_a_manifest_that_boasts_of_another_accuracy(tmp_path: Path, stated: float, good: bool) -> None:
    """With 2,000 pictures of which 85.2% are right, five standard errors are 0.056."""
    checks = {"pictures": 256, "feature_difference": 0, "beyond_tolerance": 0, "logit_difference": 0, "same_label": 1}
    write_small_artefact(tmp_path, accuracy=stated, checks=checks | {"accuracy": 0.852, "accuracy_pictures": 2000})
    if good:
        assert read(tmp_path).manifest.accuracy == stated
    else:
        with pytest.raises(ArtefactError, match=f"accuracy of {stated:.1%} where its export measured 85.2%"):
            read(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000])
def test_a_manifest_that_is_no_json(small_artefact: Artefact, content: bytes) -> None:
    (small_artefact.path / "manifest.json").write_bytes(content)
    assert is_artefact(small_artefact.path)  # a damaged one
    with pytest.raises(ArtefactError, match="is no JSON"):
        read(small_artefact.path)
    for name in ("edge.onnx", "cloud.onnx"):
        (small_artefact.path / name).unlink()
    assert not is_artefact(small_artefact.path)


@pytest.mark.parametrize("content", ["{}", "[1]", '{"status": "finished"}'])
def test_an_artefact_whose_manifest_is_another_is_damaged_and_no_run(small_artefact: Artefact, content: str) -> None:
    (small_artefact.path / "config.toml").touch()
    (small_artefact.path / "manifest.json").write_text(content)
    with pytest.raises(ArtefactError, match=r"manifest\.json is damaged") as error:
        read(small_artefact.path)
    assert "Copy the folder again" in error.value.hint
    (small_artefact.path / "manifest.json").unlink()
    with pytest.raises(NotAnArtefactError, match=r"has no manifest\.json") as error:
        read(small_artefact.path)
    assert "Copy the folder again" in error.value.hint


def test_a_manifest_without_end_is_not_read_into_memory(
    small_artefact: Artefact, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("splitveil.serving.artefact.MAX_MANIFEST", 10)
    with pytest.raises(ArtefactError, match="far too long"):
        read(small_artefact.path)


def test_what_is_no_artefact_is_a_wrong_call(tmp_path: Path) -> None:
    with pytest.raises(NotAnArtefactError, match="There is no artefact") as error:
        read(tmp_path / "nowhere")
    assert error.value.exit_code == 2
    with pytest.raises(NotAnArtefactError, match=r"has no manifest.json"):
        read(tmp_path)
    (tmp_path / "manifest.json").write_text('{"status": "finished"}')
    (tmp_path / "config.toml").write_text("")
    with pytest.raises(NotAnArtefactError, match="does not call itself one") as error:
        read(tmp_path)
    assert "export it first" in error.value.hint
    assert not is_artefact(tmp_path)
    assert not is_artefact(tmp_path / "nowhere")


def test_a_device_needs_no_torch() -> None:
    code = "import sys; import splitveil.serving.halves; print([m for m in sys.modules if m.split('.')[0] == 'torch'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_public_names_of_serving_are_these() -> None:
    from splitveil import serving

    assert serving.__all__ == [
        "Artefact", "CloudHalf", "EdgeClient", "EdgeHalf", "FeatureClient", "HttpTransport", "LocalTransport",
        "Manifest", "RepeatGuard", "SecureSource", "SeededSource", "export_model", "export_run", "read",
    ]  # fmt: skip
    for name in serving.__all__:
        assert getattr(serving, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'reed'"):
        serving.reed  # noqa: B018


def test_the_promise_says_what_was_found_and_what_was_not() -> None:
    found = {"mse": 0.0181, "ssim": 0.456, "psnr": 18.0}
    audit = {"tier": "smoke", "mode": "training_time", "num_images": 9, "signature": "x", "worst_case": found}
    fields = {"splitveil": "0", "signature": "s", "model": "m", "num_classes": 2, "opset": 18}
    fields |= {"defences": [{"name": "noise"}]}
    fields |= {"input": {"shape": [1, 4, 4]}, "feature": {"shape": [2]}, "files": {"edge.onnx": "0", "cloud.onnx": "0"}}

    def promise(**more: Any) -> str:
        return Manifest.model_validate(fields | more).promise()

    assert promise() == "nothing; what it leaks was never audited"
    assert promise(accuracy=0.9) == "accuracy 90.0%; what it leaks was never audited"
    assert promise(accuracy=0.9, audit=audit) == "accuracy 90.0%, worst-case MSE 0.0181, SSIM 0.46 (smoke audit)"
    floors = {"mean_image": found | {"mse": 0.06}}
    assert promise(audit=audit | {"floors": floors}).endswith("(smoke audit), where guessing gives MSE 0.0600")
    bare = {"accuracy": 0.9, "defences": []}
    assert promise(**bare) == "accuracy 90.0%; what it leaks was never audited; it has no defences"
    assert promise(**bare, audit=audit).endswith("(smoke audit); it has no defences")
    assert "no defences" not in promise(**bare, surrogate="gmm")
    drawn = [{"name": f"normal_{place}", "law": "normal", "shape": [2]} for place in range(2)]
    own = "; it has no defence of Splitveil's; the graph draws "
    assert promise(**bare, random=drawn[:1]).endswith(f"{own}1 random input")
    assert promise(**bare, random=drawn).endswith(f"{own}2 random inputs")


def test_an_artefact_that_is_not_there_names_the_one_that_is(small_artefact: Artefact) -> None:
    with pytest.raises(NotAnArtefactError, match="There is no artefact") as error:
        read(small_artefact.path.with_name("artefcat"))
    assert error.value.hint == f"Did you mean {small_artefact.path}?"
