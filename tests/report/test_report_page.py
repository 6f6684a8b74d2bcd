"""The page as a document: well formed, complete, closed to the outside, and in agreement with the files."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from splitveil.core.errors import UsageError
from splitveil.report import build_report

SECTIONS = [
    "verdict",
    "gallery", "frontier", "runs", "attacks", "leakage", "training", "cost", "bounds", "configs", "provenance",
    "glossary",
]  # fmt: skip


def test_page_is_well_formed(demo, build):
    page = build(demo)
    assert page.faults == []
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    anchors = [attrs["href"].removeprefix("#") for attrs in page.named("a")]
    assert anchors
    assert set(anchors) <= set(ids)


def test_page_has_every_section(demo, build):
    assert [attrs["id"] for attrs in build(demo).named("section")] == SECTIONS


def test_nothing_is_loaded_from_outside(demo, build):
    page = build(demo)
    for tag, attrs in page.elements:
        assert tag not in {"link", "iframe", "object", "embed", "base", "audio", "video"}
        for name in ("src", "href", "srcset", "action", "poster", "data", "xlink:href"):
            assert attrs.get(name, "#").startswith(("data:image/png;base64,", "#")), (tag, name)
    style = re.search(r"<style>(.*?)</style>", page.source, re.S)
    assert style is not None
    assert not re.search(r"url\(|@import", style[1])
    assert "://" not in re.sub(r"data:image/png;base64,[\w+/=]+", "", page.source)


def test_policy_allows_our_script_and_style_and_nothing_else(demo, build):
    page = build(demo)
    policy = next(attrs["content"] for attrs in page.named("meta") if attrs.get("http-equiv"))
    assert policy.startswith("default-src 'none'; img-src data:;")
    for tag in ("script", "style"):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page.source, re.S)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy
    # The policy forbids style attributes, so there must be none.
    assert not [tag for tag, attrs in page.elements if "style" in attrs]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_verdict_agrees_with_the_files(demo, build, lang):
    page = build(demo, lang=lang)
    assert page.named("html")[0]["lang"] == lang
    audits = {name: json.loads((demo / name / "audit/audit.json").read_text()) for name in ("defended", "undefended")}
    accuracy = json.loads((demo / "defended" / "result.json").read_text())["accuracy_late"]
    verdict = page.text("verdict", lang)
    numbers = [float(number) for number in re.findall(r"\d+\.\d+", verdict)]
    expected = [accuracy * 100]
    for scores in (
        audits["defended"]["worst_case"],
        audits["undefended"]["worst_case"],
        audits["defended"]["floors"]["mean_image"],
    ):
        expected += [scores["ssim"], scores["mse"]]
    assert numbers == pytest.approx(expected, abs=0.0051)
    assert ("the best of 2 attacks" if lang == "en" else "2 种攻击中最强者") in verdict


def test_english_verdict_reads_as_one_sentence(demo, build):
    assert build(demo).text("verdict") == (
        "At 87.1 % accuracy, the best of 2 attacks recovers pictures at SSIM 0.41 (MSE 0.0248); "
        "undefended 0.87 (0.0125); guessing the mean picture scores 0.15 (0.0870)."
    )


def test_pictures_and_charts_have_words(demo, build):
    page = build(demo)
    images = page.named("img")
    # 8 originals, and the same 8 pictures from each of two methods: originals are not repeated per run.
    assert len(images) == 8 * 3
    assert all(attrs["alt"] for attrs in images)
    assert len({attrs["src"] for attrs in images}) == len(images)
    charts = [attrs for attrs in page.named("svg") if "chart" in attrs.get("class", "")]
    assert len(charts) >= 8
    assert all(attrs.get("role") in {"img", "group"} and attrs.get("aria-label") for attrs in charts)
    # All charts except the small scale have a data table beside them.
    assert len(page.named("details")) >= len(charts) - 1


def test_gallery_is_sorted_by_what_remains_leaked(demo, build):
    page = build(demo)
    shots = json.loads((demo / "defended" / "audit/gallery.json").read_text())["images"]
    expected = [f"{s['class_name']} · #{s['index']}" for s in sorted(shots, key=lambda s: -s["worst"]["ssim"])]
    assert [attrs["aria-label"] for attrs in page.named("article") if attrs["class"] == "card"] == expected


def test_title_and_languages(demo, build):
    page = build(demo, title="Ward 7 <cameras>", lang="zh")
    assert "Ward 7 &lt;cameras&gt;" in page.source
    assert "攻击者看到了什么" in page.text(lang="zh")
    assert "攻击者看到了什么" not in page.text(lang="en")


HOSTILE = '<img src=x onerror=window.pwned=1>"\' onmouseover="window.pwned=1" <script>window.pwned=1'


def test_names_are_shown_never_executed(tmp_path, write_run, build):
    folder = write_run(tmp_path / "runs" / HOSTILE)
    audit = json.loads((folder / "audit/audit.json").read_text())
    audit["attacks"][HOSTILE] = audit["attacks"]["decoder"] | {"threat_model": HOSTILE, "summary": HOSTILE}
    audit |= {
        "tier": HOSTILE,
        "protocol": HOSTILE,
        "signature": HOSTILE,
        "per_class": {HOSTILE: {"mse": 0.1, "ssim": 0.2}},
    }
    audit["floors"][HOSTILE] = {"mse": 0.1}
    audit["bound"] = {HOSTILE: {"mse": 9.0, HOSTILE: HOSTILE, "holds_for": HOSTILE, "note": HOSTILE}}
    (folder / "audit/audit.json").write_text(json.dumps(audit))
    gallery = json.loads((folder / "audit/gallery.json").read_text())
    gallery["images"][0]["class_name"] = HOSTILE
    (folder / "audit/gallery.json").write_text(json.dumps(gallery))
    (folder / "metrics.jsonl").write_text(json.dumps({"epoch": 1, HOSTILE: 3.0, "gate": {HOSTILE: 1.0}}) + "\n")
    manifest = {"status": HOSTILE, "versions": {HOSTILE: HOSTILE}, "data": {"name": HOSTILE}}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    page = build(tmp_path / "runs", title=HOSTILE)
    assert page.faults == []
    assert len(page.named("script")) == 1
    assert not [name for _, attrs in page.elements for name in attrs if name.startswith("on")]
    assert all(attrs["src"].startswith("data:image/png;base64,") for attrs in page.named("img"))
    assert page.text().count("<script>window.pwned=1") >= 10


def test_no_torch_is_needed(demo, tmp_path):
    program = (
        "import sys; from pathlib import Path; from splitveil.report import build_report; "
        "build_report([Path(sys.argv[1])], Path(sys.argv[2])); "
        "print(sorted({n.split('.')[0] for n in sys.modules} & {'torch', 'numpy', 'sklearn', 'scipy', 'plotly'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(demo), str(tmp_path / "r.html")],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout.strip() == "[]"


def test_page_names_no_home_directory(demo, build):
    assert str(demo.parent) not in build(demo).source


@pytest.mark.parametrize("lang", ["fr", "", "EN"])
def test_unknown_language_is_a_usage_error(demo, tmp_path, lang):
    with pytest.raises(UsageError, match="no report language"):
        build_report([demo], tmp_path / "r.html", lang=lang)


def test_thirty_runs_stay_below_ten_megabytes(tmp_path, write_run, build):
    for number in range(30):
        write_run(
            tmp_path / "sweep" / f"run{number:02d}",
            weight=float(1 + number),
            images=24,
            side=64,
            mode="RGB",
            epochs=60,
            attacks=("decoder",),
        )
    page = build(tmp_path / "sweep")
    assert len(page.source.encode()) < 10_000_000
    assert len([attrs for attrs in page.named("button") if "data-toggle" in attrs]) == 30
    # Pictures of noise do not compress, so the budget cuts rows; what is left out is said.
    assert 1 <= len([a for a in page.named("article") if a["class"] == "card"]) < 24
    assert "of 24 pictures are in this file" in page.text("after-cards")


def test_floors_of_several_sets_of_pictures_say_whose_they_are(tmp_path, write_run, build):
    for seed in (1, 2):
        path = write_run(tmp_path / "sweep" / f"run{seed}", seed=seed) / "audit" / "audit.json"
        audit = json.loads(path.read_text())
        audit["floors"] = {"mean_image": {"mse": 0.06 + seed / 1000, "ssim": 0.1, "psnr": 12.0}}
        path.write_text(json.dumps(audit))
    text = build(tmp_path / "sweep").text()
    for seed in (1, 2):  # the cells of a row follow each other without a space
        assert "".join(["mean picture", f"seed {seed}", f"{0.06 + seed / 1000:.4f}"]) in text
    assert "± is the standard deviation over seeds" in text
    alone = build(tmp_path / "sweep" / "run1").text()
    assert "mean picture0.0610" in alone
    assert "standard deviation over seeds" not in alone


def test_a_diverged_run_does_not_flatten_the_others(tmp_path, write_run, build):
    for weight in (1.0, 2.0):
        folder = write_run(tmp_path / "sweep" / f"run{weight:g}", weight=weight)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert "drawn at the upper edge" not in build(tmp_path / "sweep").text()
    rows[-1]["task_loss"] = 4e22
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    page = build(tmp_path / "sweep")
    assert "are drawn at the upper edge" in page.text()
    assert "4e+22" not in "".join(
        data for parents, data in page.texts if any("tick" in a.get("class", "") for _, a in parents)
    )
    assert "12,4e+22" in page.source  # the tooltip has the number itself


def test_out_in_a_new_folder_is_written_whole(demo, tmp_path):
    out = build_report([demo], tmp_path / "new" / "deep" / "r.html")
    assert out.read_text(encoding="utf-8").rstrip().endswith("</html>")
    assert [path.name for path in out.parent.iterdir()] == ["r.html"]


def test_out_must_not_be_a_folder(demo, tmp_path):
    with pytest.raises(UsageError, match="is a folder"):
        build_report([demo], tmp_path)


def test_folders_without_runs(tmp_path):
    with pytest.raises(UsageError, match="no run folder"):
        build_report([tmp_path], tmp_path / "r.html")
    with pytest.raises(UsageError, match="There is no folder"):
        build_report([tmp_path / "absent"], tmp_path / "r.html")
    with pytest.raises(UsageError, match="empty list"):
        build_report([], tmp_path / "r.html")
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="is a file"):
        build_report([Path(tmp_path / "file")], tmp_path / "r.html")
    assert not (tmp_path / "r.html").exists()


def test_the_verdict_says_where_nothing_defends_the_pictures(demo, build):
    assert "and nothing defends them" in build(demo / "undefended").text("verdict")
    assert "nothing defends" not in build(demo / "defended").text("verdict")


def test_a_run_named_twice_is_shown_once(demo, build):
    page = build(demo, demo / "defended", demo / "undefended" / ".." / "defended")
    assert len([attrs for attrs in page.named("button") if "data-toggle" in attrs]) == 2


def test_threat_models_are_told_in_plain_words(demo, build):
    told = build(demo).text("threat")
    assert "One transmission of each picture under attack." in told
    assert "a crystal ball" in told  # unknown to us: as the file says it
    assert "features" not in told


def test_what_an_audit_adds_is_shown(demo, build):
    path = demo / "defended" / "audit/audit.json"
    audit = json.loads(path.read_text())
    audit["failures"] = {"average": "out of memory"}
    audit["warnings"] = ["The attack 'decoder' was still improving when it ended."]
    audit["inference"] = {
        "membership": {
            "findings": {
                "loss": {"auc": 0.5125, "auc_ci95": [0.48, 0.55], "tpr_at_1_percent_fpr": {"rate": 0.025}},
                "none": {"auc": None, "reason": "too few candidates"},
            },
            "seconds": 3.0,
            "summary": "Unseen.",
            "shadows": 8,
        },
        "attribute": {"findings": {"class from feature": {"rate": 0.7, "ci95": [0.6, 0.8], "guessing": 0.1}}},
        "palmistry": {"auc": 0.625, "summary": "Reads palms."},
    }
    path.write_text(json.dumps(audit))
    page = build(demo)
    assert "the attack average failed (out of memory)" in page.text("notes")
    assert "still improving when it ended" in page.text("notes")
    assert "Some attacks failed to run" in page.text("caveats")
    assert "The audit itself warns" in page.text("caveats")
    found = page.text("attack")
    assert "whether the model was trained on it" in found  # known attacks: our sentence, which has two languages
    assert "Unseen." not in found
    assert "lossAUC 0.512[0.480, 0.550]found at 1 % false alarms: 2.5 %" in found
    assert "class from feature70.0 %[60.0 %, 80.0 %]guessing: 10.0 %" in found
    assert "shadows" not in found  # a setting is no finding
    assert "Reads palms." in found
    assert "auc0.625" in found
    assert found.count("50 %") >= 2  # each of two attacks came closest for half of the pictures


def test_numbers_under_a_picture_are_those_of_that_picture(demo, build):
    path = demo / "defended" / "audit/gallery.json"
    gallery = json.loads(path.read_text())
    for image in gallery["images"]:
        image["worst"] = {"attack": "optimize", "mse": 0.0011, "ssim": 0.123}
        image["attacks"]["optimize"] = {"mse": 0.0777, "ssim": 0.321}
    path.write_text(json.dumps(gallery))
    shown = build(demo).text("shots")
    assert shown.count("SSIM 0.32MSE 0.0777") == 8
    assert "0.0011" not in shown


def test_options_of_one_method_do_not_bury_the_difference(demo, build):
    with (demo / "defended" / "config.toml").open("a") as file:
        file.write("".join(f"option_{n} = {n}\n" for n in range(40)))
    page = build(demo)
    source = page.source[page.source.index('id="configs"') : page.source.index('id="provenance"')]
    before, _, folded = source.partition("<details")
    assert "surrogate.name" in before
    assert "option_7" in folded
    assert "option_7" not in before


@pytest.mark.parametrize("published", [True, False])
def test_validation_accuracy_is_drawn_where_it_is_not_that_of_the_test(tmp_path, write_run, build, published):
    metrics = write_run(tmp_path / "a") / "metrics.jsonl"
    rows = [{"epoch": n, "test_accuracy": n / 10, "accuracy": n / 10 - (0 if published else 0.01)} for n in (1, 2, 3)]
    metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    page = build(tmp_path).text()
    assert "Test accuracy" in page
    assert ("Validation accuracy" in page) is not published
