"""What an audit really writes is on the page: bounds, capacity curves, single transmissions, its own test."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from splitveil.audit.bounds import UNREADABLE
from splitveil.audit.sent_noise import _told
from splitveil.core.catalogue import MEASURES
from splitveil.core.registry import Entry

BOUND = {  # as audit.bounds writes it
    "available": True,
    "sigma": 0.1,
    "entropy": {
        "holds_for": "every attacker, up to the estimate of the covariances",
        "repeats": {
            "1": {"information_nats": 50.75, "factor": 0.8785, "mse": None},
            "16": {"information_nats": 294.2, "factor": 0.4721, "mse": None},
        },
        "covariance": "diagonal",
        "note": "H(x) is unknown for pictures: compare factors between models, not with errors.",
    },
    "fisher": {
        "holds_for": "unbiased attackers only; trained decoders are biased",
        "dfil": 8.647,
        "num_images": 64,
        "repeats": {"1": {"mse": 0.1202}, "16": {"mse": 0.0075}},
        "below": ["decoder", "optimize"],
    },
    "alarm": [],
}


def change(run: Path, **values: object) -> None:
    path = run / "audit" / "audit.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def part(page, name: str) -> str:
    source = page.source[page.source.index(f'<section id="{name}"') :]
    return source[: source.index("</section>")]


def test_bounds_are_told_with_whom_they_hold_for(demo, build):
    change(demo / "defended", bound=BOUND)
    reason = "The model declares no Gaussian noise of a fixed scale; without it no bound exists."
    change(demo / "undefended", bound={"available": False, "reason": reason})
    page = build(demo)
    assert page.faults == []
    text = part(page, "bounds")
    for words in ("Entropy bound", "Fisher bound", "294.2", "0.4721", "0.1202", "0.0075", reason):
        assert words in text
    assert "every attacker, up to the estimate of the covariances" in text
    assert "decoder, optimize" in text
    assert "任何攻击者" in text
    assert "模型没有声明固定尺度的高斯噪声" in text
    for noise in ("available", "alarm", "diagonal", "num_images", "no assumptions"):
        assert noise not in text
    # without H(x) the entropy bound has no MSE: no column of dashes
    assert text.count("Lower bound, MSE") == 1
    # a bound that holds for some attackers only is no contradiction
    assert "went below its lower bound" not in page.text("caveats")


def test_why_a_bound_is_withheld_is_told_in_both_languages(demo, build):
    for sentence, chinese in (
        (UNREADABLE, "仅凭计算图无法得出理论界"),
        (_told(0.5, 10**6, 3.0, " for one of the pictures"), "实际发送的噪声标准差为 1.5"),
    ):
        change(demo / "defended", bound={"available": False, "reason": sentence}, warnings=[sentence])
        page = build(demo)
        assert sentence in part(page, "bounds")
        assert chinese in part(page, "bounds")


def test_one_transmission_is_held_against_attacks_that_saw_one(demo, build):
    change(demo / "defended", bound=BOUND, worst_case_once={"mse": 0.0333, "ssim": 0.3})
    rows = part(build(demo), "bounds")
    once = rows[rows.index("0.1202") :]
    assert once.index("0.0333") < once.index("0.0075") < once.index("0.0248")


def test_an_alarm_is_the_first_thing_a_reader_sees(demo, build):
    alarm = "The attack 'decoder' reached 0.01, below the proved bound 0.02."
    change(demo / "defended", bound=BOUND | {"alarm": [alarm]})
    page = build(demo)
    assert alarm.replace("'", "&#x27;") in part(page, "bounds")
    assert "went below its lower bound" in page.text("caveats")


def test_the_leak_of_a_single_transmission_is_said(demo, build):
    change(demo / "defended", worst_case_once={"mse": 0.0301, "ssim": 0.31})
    assert "If each picture is sent once only: SSIM 0.31 (MSE 0.0301)." in build(demo).text("which")
    change(demo / "defended", worst_case_once={"mse": 0.0248, "ssim": 0.412})  # no attack saw more than one
    assert "sent once" not in build(demo).text("which")


def test_how_often_the_attacker_saw_a_picture_is_said(demo, build):
    """Noise is averaged away, so what "several transmissions" leak means nothing without their number."""
    seen = json.loads((demo / "defended" / "audit" / "audit.json").read_text())["attacks"]
    again = seen["decoder"] | {"threat_model": ["features", "repeats"], "repeats": 8}
    change(demo / "defended", worst_case_once={"mse": 0.0301, "ssim": 0.31}, attacks=seen | {"average": again})
    page = build(demo)
    assert "If each picture is sent once only, not 8 times: SSIM 0.31 (MSE 0.0301)." in page.text("which")
    assert "Further transmissions of the same pictures: 8 of each in all." in page.text("threat")
    once = seen | {"average": again | {"repeats": 1}}  # transmissions that do not differ need no second one
    change(demo / "defended", worst_case_once={"mse": 0.0301, "ssim": 0.31}, attacks=once)
    page = build(demo)
    assert "sent once only: SSIM 0.31" in page.text("which")
    assert "1 of each" not in page.text("threat")


def test_the_curve_of_an_attack_names_its_axis(demo, build):
    """Its numbers are not those of the table beside it: the attacker measures them itself."""
    assert "Error, by its own measure" in part(build(demo), "attacks")


def test_every_column_that_is_no_plain_word_is_explained(demo, build):
    words = part(build(demo), "glossary")
    assert all(f">{word}<" in words for word in ("Closest for", "Effective weight", "MACs", "recon_acc", "PSNR"))


def test_a_suite_that_failed_its_own_test_is_said(demo, build):
    assert "protects nothing" not in build(demo).text("caveats")
    change(demo / "defended", sanity={"passed": False})
    assert "did not break a model that protects nothing" in build(demo).text("caveats")


def test_capacity_curve_of_the_strong_decoder(demo, build):
    strong = {
        "mse": 0.02,
        "ssim": 0.5,
        "curve": [[1e5, 0.05], [4e5, 0.05], [2e5, 0.03], [7e5, 0.028]],
        "tried": {"residual-N8C64": 0.05, "dense-N8C64": 0.06, "residual-N8C64 (augmented)": 0.03},
        "threat_model": ["features", "queries", "auxiliary"],
    }
    for run in ("defended", "undefended"):
        path = demo / run / "audit" / "audit.json"
        audit = json.loads(path.read_text())
        audit["attacks"]["decoder_strong"] = strong
        path.write_text(json.dumps(audit))
    page = build(demo)
    assert page.faults == []
    text = part(page, "attacks")
    # the best error up to each size, over a logarithmic axis; the last point is the vote
    assert 'data-v="100000,0.05 200000,0.03 400000,0.03 700000,0.028"' in text
    assert " data-log" in text
    assert "Parameters of the decoder" in text
    assert "Epochs of the attack" in text  # of `decoder`
    assert text.count("residual-N8C64 (augmented)") == 2
    assert text.count("all of them, voting") == 2


@pytest.mark.parametrize("tried", [{}, {"a": 1.0, "b": 2.0}, {"a": "x"}, 7])
def test_a_curve_without_matching_decoders_is_drawn_as_it_is(demo, build, tried):
    path = demo / "defended" / "audit" / "audit.json"
    audit = json.loads(path.read_text())
    audit["attacks"] = {"decoder_strong": {"mse": 0.02, "curve": [[1e5, 0.05], [2e5, 0.03]], "tried": tried}}
    path.write_text(json.dumps(audit))
    assert 'data-v="100000,0.05 200000,0.03"' in part(build(demo), "attacks")


def test_pictures_that_every_method_kept_come_first(demo, build):
    path = demo / "defended" / "audit" / "gallery.json"
    gallery = json.loads(path.read_text())
    lonely = dict(gallery["images"][0], index=999, attacks={"decoder": {"mse": 1e-4, "ssim": 0.999}})
    lonely["worst"] = {"attack": "decoder", "mse": 1e-4, "ssim": 0.999}
    gallery["images"].append(lonely)
    path.write_text(json.dumps(gallery))
    for folder in ("original", "decoder"):
        (path.parent / folder / "00999.png").write_bytes((path.parent / folder / "00012.png").read_bytes())
    cards = [attrs["aria-label"] for attrs in build(demo).named("article") if attrs["class"] == "card"]
    assert len(cards) == 9
    assert cards[-1].endswith("#999")


@pytest.mark.parametrize("file", ["config.toml", "result.json", "audit/audit.json", "explain/explain.json"])
def test_what_cannot_be_read_is_said_in_the_terminal(demo, build, caplog, file):
    path = demo / "defended" / file
    path.parent.mkdir(exist_ok=True)
    path.write_text("= torn")
    with caplog.at_level(logging.WARNING, "splitveil.report"):
        build(demo)
    (record,) = caplog.records
    assert record.getMessage().startswith(f"warning: {demo / 'defended'}: {file} cannot be read (")


def test_what_is_only_missing_is_not(demo, build, caplog):
    (demo / "defended" / "result.json").unlink()
    with caplog.at_level(logging.WARNING, "splitveil.report"):
        build(demo)
    assert caplog.records == []


def make_sweep(folder: Path, write_run) -> None:
    for weight in (4.0, 16.0):
        write_run(folder / "cells" / f"w{weight:g}", weight=weight, images=1)
    cells = [
        {"id": "w4", "method": "gmm", "status": "done", "error": None},
        {"id": "w16", "method": "gmm", "status": "done", "error": None},
        {"id": "w64", "method": "<b>gmm</b>", "status": "failed", "error": "Out of memory: 7 GB\nTraceback ..."},
        {"id": "w99", "method": "gmm", "status": "waiting", "error": None},
    ]
    (folder / "sweep.json").write_text(json.dumps({"recipe": "grid", "cells": cells}))


def test_a_sweep_says_what_is_not_in_its_tables(tmp_path, write_run, build):
    make_sweep(tmp_path / "sweep", write_run)
    page = build(tmp_path / "sweep")
    assert page.faults == []
    assert len([attrs for attrs in page.named("button") if "data-toggle" in attrs]) == 2
    notes = page.text("notes")
    assert "2 of 4 cells have finished" in notes
    assert "w64 (<b>gmm</b>): failed: Out of memory: 7 GB" in notes
    assert "Traceback" not in notes
    commands = page.text("command")
    assert "splitveil report sweep --out report.html" in commands
    assert "splitveil sweep grid --out sweep" in commands


@pytest.mark.parametrize("content", ["", "[]", '{"cells": 3}', '{"cells": [1, {}, {"error": 5}]}'])
def test_a_damaged_sweep_still_shows_its_runs(tmp_path, write_run, build, content, caplog):
    make_sweep(tmp_path / "sweep", write_run)
    (tmp_path / "sweep" / "sweep.json").write_text(content)
    page = build(tmp_path / "sweep")
    assert page.faults == []
    assert len([attrs for attrs in page.named("button") if "data-toggle" in attrs]) == 2
    assert bool(caplog.records) == ("cannot be read" in page.text("notes")) == (content in ("", "[]"))


def test_the_command_repeats_what_was_asked_for(demo, build):
    page = build(demo / "defended", demo / "undefended", title="It's mine", lang="zh")
    command = """splitveil report defended undefended --out report.html --title 'It'"'"'s mine' --lang zh"""
    assert command in page.text("command", "zh")


def test_audits_in_other_modes_stand_apart(demo, build, caplog):
    audit = json.loads((demo / "defended" / "audit" / "audit.json").read_text())
    audit["worst_case"] = {"mse": 0.0456, "ssim": 0.321, "psnr": 14.0}
    (demo / "defended" / "audit-inference_time").mkdir()
    (demo / "defended" / "audit-inference_time" / "audit.json").write_text(json.dumps(audit))
    (demo / "undefended" / "audit-other").mkdir()
    (demo / "undefended" / "audit-other" / "audit.json").write_text("torn")
    page = build(demo)
    assert page.faults == []
    text = part(page, "runs")
    other = text[text.index("Audits in other modes") : text.index("Floors")]
    assert "inference_time" in other
    assert "0.0456" in other
    assert "0.0456" not in page.text("verdict")
    assert "audit-other/audit.json cannot be read" in page.text("notes")
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"verdict": None}, True),
        ({"verdict": {"leak": 0.2}}, False),
        ({}, False),  # an audit of an earlier version does not say
        ({"verdict": None, "failures": {"x": "y"}}, False),
    ],
)
def test_an_audit_whose_numbers_are_not_to_be_trusted_is_no_headline_without_a_word(more, said, demo, build):
    change(demo / "defended", sanity={"passed": True}, **more)
    assert ("numbers are not to be trusted" in build(demo).text()) is said


def test_without_an_undefended_run_the_headline_says_how_near_the_most_accurate_it_is(tmp_path, write_run, build):
    write_run(tmp_path / "runs/accurate", weight=4.0, accuracy=0.89, mse=0.02, images=1)
    write_run(tmp_path / "runs/costly", weight=64.0, accuracy=0.5, mse=0.08, images=1)
    assert "the most accurate of 2, by more than 3 points." in build(tmp_path / "runs").text("which")
    write_run(tmp_path / "runs/safer", weight=8.0, accuracy=0.88, mse=0.03, images=1)
    # the accuracy on other data, or of a model behind an address, may be far from the best here
    said = "the safest of the 2 (of 3) not known to lie more than 3 points below the most accurate on the same data."
    assert said in build(tmp_path / "runs").text("which")


def test_the_only_cheap_method_is_called_so(demo, write_run, build):
    write_run(demo / "costly", weight=64.0, accuracy=0.5, images=1)
    assert "the only one of 2 that costs at most 3 points of accuracy." in build(demo).text("which")
    write_run(demo / "cheap", weight=2.0, accuracy=0.88, images=1)
    assert "the safest of the 2 (of 3) that cost at most 3 points" in build(demo).text("which")


def test_the_command_makes_this_very_audit_again(demo, build):
    """Not the whole tier where only a part of it was asked for; an audit of an earlier version tells its tier alone."""
    path = demo / "defended" / "audit" / "audit.json"
    assert "defended-again --tier smoke" in build(demo).text()
    assert "--attack" not in build(demo).text()
    tree = json.loads(path.read_text())
    plan = {"decoder": {"epochs": 2}, "optimize": {}}
    path.write_text(json.dumps(tree | {"plan": plan, "epochs": 2, "ended": "2026-01-02T04:00:00+00:00"}))
    told = build(demo).text()
    options = "--tier smoke --attack decoder --attack optimize --epochs 2 --num-images 2000 --no-sanity"
    assert f"defended-again {options}" in told
    assert "2026-01-02T04:00:00+00:00" in told
    path.write_text(json.dumps(tree | {"plan": {"decoder": {}}, "epochs": None, "sanity": {"passed": True}}))
    assert "--no-sanity" not in build(demo).text()
    assert "defended-again --tier smoke --attack decoder --num-images 2000" in build(demo).text()


def test_the_command_has_the_seed_of_the_attacks_where_it_is_not_the_runs(demo, build):
    path = demo / "defended" / "audit" / "audit.json"
    tree = json.loads(path.read_text()) | {"plan": {"decoder": {}}, "sanity": {"passed": True}}
    seed = json.loads((demo / "defended" / "manifest.json").read_text())["seed"]
    for attacks, option in ((seed, ""), (seed + 1, f" --seed {seed + 1}")):
        path.write_text(json.dumps(tree | {"signature": f"splitveil:0.1.0|audit|attack_seed:{attacks}|attacks:0"}))
        assert f"--attack decoder --num-images 2000{option}Copy" in build(demo).text()


def test_what_only_python_can_ask_for_is_said_under_the_command(demo, build):
    path = demo / "defended" / "audit" / "audit.json"
    plan = {"decoder": {"width": 8, "epochs": 2}}
    tree = json.loads(path.read_text()) | {"plan": plan, "own_options": {"decoder": {"epochs": 2}}, "epochs": 2}
    path.write_text(json.dumps(tree))
    assert "not to be had from this command" not in build(demo).text()
    path.write_text(json.dumps(tree | {"own_options": plan, "extra": {"lpips": {}, "edges": {}}}))
    said = build(demo).text()
    assert "Given in Python, and not to be had from this command: decoder.width = 8, edges." in said
    assert "--measure lpips" in said
    config = demo / "defended" / "config.toml"  # unless the recipe says it
    config.write_text(config.read_text() + "\n[audit.attacks.decoder]\nwidth = 8\n")
    path.write_text(json.dumps(tree | {"own_options": plan, "signature": None}))
    assert "not to be had from this command" not in build(demo).text()


def test_the_command_asks_for_every_measure_that_has_a_name(demo, build, monkeypatch):
    change(demo / "defended", plan={"decoder": {}}, extra={"lpips": {}, "edges": {}})
    monkeypatch.setattr(MEASURES, "_entries", MEASURES._entries | {"edges": Entry("plugged_in:edges", "Lost edges.")})
    said = build(demo).text()
    assert "--measure lpips --measure edges" in said
    assert "not to be had from this command" not in said


def test_an_audit_that_is_not_its_tiers_says_so_where_the_tier_is_named(demo, build):
    assert " audit ·" in build(demo).text("eyebrow")
    assert "altered" not in build(demo).text("eyebrow")
    for name in ("defended", "undefended"):
        path = demo / name / "audit" / "audit.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"departures": ["Fewer attacks."]}))
    page = build(demo)
    assert "audit, altered ·" in page.text("eyebrow")
    assert "有改动" in page.text("eyebrow", "zh")


def test_groups_are_told_beside_guessing(demo, build):
    groups = {
        "1": {"mse": 0.02, "ssim": 0.61, "guess_mse": 0.08, "num_images": 40},
        "0": {"mse": 0.06, "ssim": 0.32, "guess_mse": 0.08, "num_images": 60},
        "odd": "not a group",
    }
    before = build(demo)
    assert "Group by group" not in before.source
    change(demo / "defended", per_group={"glasses": groups, "hat": []})
    page = build(demo)
    assert page.faults == []
    text = part(page, "leakage")
    for words in ("Group by group", "按群体", "glasses = 1", "glasses = 0", "25.0", "75.0", "0.610", "0.0800"):
        assert words in text
    assert "odd" not in text
    assert "hat =" not in text


def test_the_class_that_leaks_most_comes_first(demo, build):
    """By the defended method: the more alike a class's reconstructions are, the more of it leaks."""
    entry = {"mse": 0.05, "psnr": 13.0, "num_images": 10}
    alike = {"class-low": 0.1, "class-high": 0.7, "class-middle": 0.4}
    change(demo / "defended", per_class={name: entry | {"ssim": ssim} for name, ssim in alike.items()})
    change(demo / "undefended", per_class={name: entry | {"ssim": 0.9} for name in alike})
    text = part(build(demo), "leakage")
    assert text.index("class-high") < text.index("class-middle") < text.index("class-low")
