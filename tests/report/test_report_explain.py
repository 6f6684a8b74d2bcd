"""The section with gate and slot pictures: from explain.json, from stored gates, and from whatever else lies there."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from explaining import FIGURES, add_explain, explain_tree
from oddities import places, spoil
from safetensors.torch import save_file

from splitveil.report.sections import explain as section


def store_gates(run: Path, epochs: int = 3) -> None:
    random_ = torch.Generator().manual_seed(0)
    (run / "gates").mkdir()
    for epoch in range(2, 2 + epochs):
        maps = {
            "labels": torch.arange(20) % 10,
            "resp": torch.rand(20, 3, generator=random_),
            "slot_mass": torch.rand(10, 3, generator=random_),
            "class_used": torch.ones(10, dtype=torch.bool),
            "gate_soft": torch.rand(10, 3, 392, generator=random_),
            "gate_soft_mean": torch.rand((), generator=random_),
        }
        save_file(maps, run / "gates" / f"epoch-{epoch:04d}.safetensors")


def sections(page) -> list[str]:
    return [attrs["id"] for attrs in page.named("section")]


def figures_of(page) -> int:
    source = page.source[page.source.index('<section id="explain"') :]
    return source[: source.index("</section>")].count("<figure")


def test_without_anything_to_show_there_is_no_section(demo, build):
    page = build(demo)
    assert "explain" not in sections(page)
    assert "#explain" not in page.source


def test_explained_runs_are_shown_with_tables(demo, build):
    add_explain(demo / "defended")
    page = build(demo)
    assert page.faults == []
    assert sections(page).index("explain") == sections(page).index("training") + 1
    assert figures_of(page) == len(FIGURES)
    charts = [attrs for attrs in page.named("svg") if attrs.get("class", "").split()[:1] == ["chart"]]
    assert all(attrs.get("aria-label") for attrs in charts)
    assert "the final state on 40 test pictures" in page.text("quiet")
    assert "splitveil explain says: one thing" in page.text("notes")
    # every figure has its numbers beside it
    source = page.source[page.source.index('<section id="explain"') :]
    source = source[: source.index("</section>")]
    assert source.count('<details class="more">') == len(FIGURES)
    # the buttons that hide methods do not hide slots or classes
    assert "data-m=" not in source


def test_no_maps_on_no_pictures_are_told_of(demo, build):
    """An undefended run has planes of its features, and no surrogate that could have maps."""
    tree = explain_tree()
    add_explain(demo / "undefended", tree | {"maps": {}, "looks": {}, "training": {}})
    told = build(demo / "undefended").text("quiet")
    assert "Planes: what the device sends for 60 test pictures." in told
    assert "Maps" not in told
    add_explain(demo / "undefended", tree | {"planes": {}})
    told = build(demo / "undefended").text("quiet", lang="zh")
    assert "映射图：最终状态在 40 张测试图片上的结果。" in told  # noqa: RUF001
    assert "平面图" not in told


def test_stored_gates_alone_are_shown(demo, build):
    store_gates(demo / "defended")
    page = build(demo)
    assert page.faults == []
    assert figures_of(page) == 6  # slot mass, over training, assignment, gate by class, by place, over training
    told = page.text("quiet")
    assert "From the maps that training stored" in told
    assert "splitveil explain" in told
    assert "Trouser" in page.source[page.source.index('<section id="explain"') :]  # names come from the gallery


def test_explain_is_preferred_to_stored_gates(demo, build):
    store_gates(demo / "defended")
    add_explain(demo / "defended")
    assert "the final state on 40 test pictures" in build(demo).text("quiet")


def test_a_damaged_epoch_falls_back_to_the_one_before(demo, build):
    store_gates(demo / "defended")
    (demo / "defended" / "gates" / "epoch-0004.safetensors").write_bytes(b"torn")
    assert figures_of(build(demo)) == 6


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"maps": 3, "planes": [1]}', bytes(range(256))])
def test_a_damaged_explanation_is_noted(demo, build, content):
    add_explain(demo / "defended")
    (demo / "defended" / "explain" / "explain.json").write_bytes(content)
    page = build(demo)
    assert page.faults == []
    readable = content.startswith(b'{"')
    assert ("explain/explain.json cannot be read" in page.text("notes")) != readable


@pytest.mark.parametrize("seed", range(15))
def test_foreign_values_anywhere(demo, build, seed):
    chance = random.Random(seed)
    tree = explain_tree(points=12, classes=3)
    every = [place for place in places(tree) if len(place) <= 3] * 3 + list(places(tree))
    spoil(tree, chance.sample(every, 6), chance)
    add_explain(demo / "defended", tree)
    page = build(demo)
    assert page.faults == []
    for _, attrs in page.elements:
        for name in ("d", "points", "x", "y", "width", "height", "fill-opacity"):
            assert "nan" not in attrs.get(name, "")
            assert "inf" not in attrs.get(name, "")


def test_names_are_shown_never_executed(demo, build):
    hostile = '<script>window.pwned=1</script>" onload="x'
    tree = explain_tree(names=(hostile,))
    tree["planes"]["after"]["run"] = tree["notes"][0] = tree["signature"] = hostile
    tree["looks"]["pictures"][0]["png"] = hostile
    tree["looks"]["pictures"][1]["png"] += '"/><script>window.pwned=1</script>'  # a picture, if one skips odd letters
    add_explain(demo / "defended", tree)
    page = build(demo)
    assert page.faults == []
    assert len(page.named("script")) == 1
    assert not [name for _, attrs in page.elements for name in attrs if name.startswith("on")]
    assert [attrs["href"][:27] for attrs in page.named("image")] == ["data:image/png;base64,iVBOR"]  # the third


def test_figures_stay_within_their_budget(demo, write_run, build, monkeypatch):
    monkeypatch.setattr(section, "BUDGET", 300_000)
    for number in range(4):
        add_explain(write_run(demo / f"more{number}", weight=float(number + 2), images=1))
    page = build(demo)
    source = page.source[page.source.index('<section id="explain"') :]
    source = source[: source.index("</section>")]
    assert 1 <= source.count('<details class="run"') + source.count("<details open") < 4
    assert len(source) < 300_000 + 200_000
    assert "further runs have such figures" in page.text("quiet")


def test_no_torch_is_needed(demo, tmp_path):
    add_explain(demo / "defended")
    store_gates(demo / "undefended")
    program = (
        "import sys; from pathlib import Path; from splitveil.report import build_report; "
        "from splitveil.report.figures.files import write_figures; "
        "build_report([Path(sys.argv[1])], Path(sys.argv[2])); "
        "write_figures(Path(sys.argv[1]) / 'defended', Path(sys.argv[2]).parent / 'figures'); "
        "print(sorted({n.split('.')[0] for n in sys.modules} & {'torch', 'numpy', 'sklearn', 'scipy'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(demo), str(tmp_path / "r.html")],
        capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.stdout.strip() == "[]"
    assert 'id="explain"' in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_run_folders_below_explain_and_gates_are_not_runs(demo, build):
    add_explain(demo / "defended")
    (demo / "explain").mkdir()
    (demo / "explain" / "config.toml").write_text("seed = 1\n")
    assert len([attrs for attrs in build(demo).named("button") if "data-toggle" in attrs]) == 2


def test_the_tree_of_this_file_is_what_json_allows():
    assert json.loads(json.dumps(explain_tree(), allow_nan=False)) == explain_tree()
