"""The numbers in the tables of a page are those in the files: each stands in its own column, means are over seeds."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from splitveil.report import numbers

Scores = dict[str, Any]


def scores(mse: float, ssim: float, psnr: float) -> Scores:
    low, high = [mse - 0.001, mse + 0.002], [ssim - 0.03, ssim + 0.04]
    return {"mse": mse, "ssim": ssim, "psnr": psnr, "mse_ci95": low, "ssim_ci95": high}


def audited(run: Path, k: int) -> None:
    """Give the audit of a run numbers that occur nowhere else; those of k = 2 and 4 have round means."""
    path = run / "audit" / "audit.json"
    tree = json.loads(path.read_text(encoding="utf-8"))
    decoder = scores(0.01 * k, 0.1 * k, 10.0 + k) | {
        "recon_acc": 0.11 * k,
        "seconds": 10.0 * k,
        "curve": [[1, 0.9], [7, 0.05 * k]],
    }
    read = {"rate": 0.21 * k, "ci95": [0.2 * k, 0.22 * k], "guessing": 0.05 * k}
    tree |= {
        "extra": {
            "edges": {
                "larger_is_private": False,
                "floor": {"mean_image": {"mean": 0.77, "ci95": None}},
                "attacks": {"decoder": {"mean": -1.25 * k, "ci95": None}},
            }
        },
        "attacks": {"decoder": tree["attacks"]["decoder"] | decoder},
        "worst_case": scores(0.009 * k, 0.12 * k, 11.0 + k) | {"winners": {"decoder": 0.2 * k}},
        "worst_decile": scores(0.003 * k, 0.2 * k, 20.0 + k),
        "per_class": {"Coat": scores(0.007 * k, 0.15 * k, 12.0 + k)},
        "inference": {
            "attribute": {"findings": {"class from feature": read}},
            "membership": {
                "findings": {
                    "loss": {
                        "auc": 0.23 * k,
                        "auc_ci95": [0.22 * k, 0.24 * k],
                        "tpr_at_1_percent_fpr": {"rate": 0.03 * k},
                        "accuracy_of_attack": {"rate": 0.17 * k},
                    }
                }
            },
        },
    }
    path.write_text(json.dumps(tree), encoding="utf-8")


@pytest.fixture
def page(tmp_path: Path, write_run: Callable[..., Path], build: Callable[..., Any]) -> Any:
    """An undefended run (k = 1), and two seeds (k = 2 and 4) of a defended method."""
    audited(write_run(tmp_path / "undefended", surrogate=None, sigma=0.0, accuracy=0.9), 1)
    audited(write_run(tmp_path / "a", seed=1, accuracy=0.88), 2)
    audited(write_run(tmp_path / "b", seed=2, accuracy=0.86), 4)
    return build(tmp_path)


def rows(page: Any, section: str) -> list[list[str]]:
    """The cells of all rows of a section's tables, as an English reader sees them."""
    source = page.source[page.source.index(f'<section id="{section}"') :]
    source = source[: source.index("</section>")]
    found = []
    for row in re.findall(r"<tr[^>]*>(.*?)</tr>", source, re.S):
        cells = re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.S)
        plain = [re.sub(r'<(\w+)[^>]*lang="zh"[^>]*>.*?</\1>', "", cell, flags=re.S) for cell in cells]
        plain = [re.sub(r"<[^>]+>", " ", cell).replace("\u00a0", " ") for cell in plain]
        found.append([" ".join(cell.split()) for cell in plain])
    return found


def of(found: list[list[str]], start: str) -> list[list[str]]:
    return [row[1:] for row in found if row and row[0].startswith(start)]


def test_the_table_of_an_attack(page: Any) -> None:
    table = rows(page, "attacks")
    alone, several = of(table, "A")[0], of(table, "B")[0]
    assert alone == ["0.0100 [0.0090, 0.0120]", "0.100", "11.0 dB", f"{numbers.MINUS}1.25", "20 %", "11.0 %", "10 s"]
    assert several == [
        "0.0300",
        "0.300",
        "13.0 dB",
        f"{numbers.MINUS}3.75",
        "60 %",
        "33.0 %",
        "30 s",
    ]  # means of 2 and 4
    ends = [row for row in of(table, "A") if row[0] == "1"]
    assert ends == [["1", "0.9", "7", "0.05"]]  # first and last point of the curve


UNKNOWN = "the audits do not say which way is more private, or contradict each other."
UNKNOWN_ZH = "审计未说明哪个方向更私密，或说法不一。"  # noqa: RUF001


@pytest.mark.parametrize(
    ("larger", "en", "zh"),
    [
        (True, "larger is more private.", "越大越私密。"),
        (False, "smaller is more private.", "越小越私密。"),
        (None, UNKNOWN, UNKNOWN_ZH),
        ("yes", UNKNOWN, UNKNOWN_ZH),
    ],
)
def test_a_measure_of_the_audits_own_says_how_it_is_read(
    larger: Any, en: str, zh: str, tmp_path: Path, write_run: Callable[..., Path], build: Callable[..., Any]
) -> None:
    run = write_run(tmp_path / "a")
    audited(run, 1)
    path = run / "audit" / "audit.json"
    tree = json.loads(path.read_text(encoding="utf-8"))
    tree["extra"]["edges"]["larger_is_private"] = larger
    tree["extra"]["never taken"] = {}
    path.write_text(json.dumps(tree), encoding="utf-8")
    page = build(tmp_path)
    assert f"Guessing the mean picture has 0.77; {en}" in page.text()
    assert f"猜测平均图片为 0.77\N{FULLWIDTH SEMICOLON}{zh}" in page.text(lang="zh")
    assert "never taken is" not in page.text()
    assert ["Method", "MSE", "SSIM", "PSNR", "edges"] in [row[:5] for row in rows(page, "attacks")]


def test_where_audits_contradict_each_other_on_a_measure_neither_is_believed(
    tmp_path: Path, write_run: Callable[..., Path], build: Callable[..., Any]
) -> None:
    for seed, larger in ((1, True), (2, False)):
        run = write_run(tmp_path / str(seed), seed=seed)
        audited(run, 1)
        path = run / "audit" / "audit.json"
        said = '"larger_is_private": '
        path.write_text(path.read_text().replace(f"{said}false", said + json.dumps(larger)))
    assert UNKNOWN in build(tmp_path).text()


def test_the_table_of_what_else_was_found_out(page: Any) -> None:
    table = rows(page, "attacks")
    ((alone, several),) = of(table, "class from feature")
    assert alone == "21.0 % [20.0 %, 22.0 %] guessing: 5.0 %"
    assert several == "63.0 % guessing: 15.0 %"
    ((alone, several),) = of(table, "loss")
    assert alone.startswith("AUC 0.230 [0.220, 0.240]")
    assert "3.0 %" in alone
    assert several.startswith("AUC 0.690")
    assert "9.0 %" in several
    assert "[" not in several


def test_who_leaks_most(page: Any) -> None:
    table = rows(page, "leakage")
    assert of(table, "A")[0] == ["0.120", "0.200", "0.0090", "0.0030"]  # mean and worst tenth, by SSIM and by MSE
    assert of(table, "B")[0] == ["0.360", "0.600", "0.0270", "0.0090"]
    assert of(table, "Coat")[0] == ["0.150", "0.0070", "0.450", "0.0210"]


def test_the_frontier_as_a_table(page: Any) -> None:
    table = rows(page, "frontier")
    assert of(table, "A") == [["90.0 %", "0.0090", "0.120", "1"]]
    assert of(table, "B") == [["87.0 %", "0.0270", "0.360", "2"]]


def test_every_run_and_the_mean_of_its_method(page: Any) -> None:
    table = rows(page, "runs")
    (alone,) = [row for row in of(table, "A") if row[0] == "90.0 %"]
    assert alone[:4] == ["90.0 %", "0.0090 [0.0080, 0.0110]", "0.120 [0.090, 0.160]", "12.0 dB"]
    assert alone[4:7] == ["decoder", "0", "125"]
    (mean,) = [row for row in of(table, "B") if row[0].startswith("87.0 %")]
    # standard deviations of .88 and .86, .018 and .036, .24 and .48: difference/√2
    assert mean[:4] == ["87.0 % ± 1.4", "0.0270 ± 0.0127", "0.360 ± 0.170", "14.0 dB"]
    assert "2" in mean[6]
    (single,) = of(table, "a")
    assert (single[0], single[5], single[6]) == ("88.0 %", "0.32", "1")  # privacy_weight 16 at a factor of .02


def test_what_device_and_server_compute(page: Any) -> None:
    (row,) = of(rows(page, "cost"), "A")
    assert row[0] == "8 \N{MULTIPLICATION SIGN} 7 \N{MULTIPLICATION SIGN} 7"
    assert [cell.replace("\u202f", " ") for cell in row[1:6]] == ["1 568 B", "922.0 k", "8.8 M", "1 312", "122.6 k"]
    assert row[6] == "9.4 %"  # 921,984 of 9,769,344


def test_the_first_screen_tells_the_change_against_the_undefended_model(page: Any) -> None:
    tiles = page.text("tiles")
    assert "87.0 %" in tiles
    assert f"{numbers.MINUS}3.0" in tiles  # points of accuracy: 87 against 90
    assert "3.0" in tiles.partition("0.0270")[2]  # times the error: .027 of .009
    assert tiles.index("0.36") < tiles.index("0.12")  # SSIM now, and before
    assert "2,000 test pictures" in page.text("eyebrow")
    assert "gmm 0.36; undefended 0.12" in page.source  # the pins on the line from "unrelated" to "perfect copy"


def test_the_first_screen_calls_no_model_with_noise_undefended(
    tmp_path: Path, write_run: Callable[..., Path], build: Callable[..., Any]
) -> None:
    audited(write_run(tmp_path / "a", surrogate=None, sigma=0.1, accuracy=0.9), 1)
    alone = build(tmp_path / "a")
    assert "and nothing but noise defends them" in alone.text("verdict")
    audited(write_run(tmp_path / "b", accuracy=0.88), 2)
    page = build(tmp_path)
    assert "noise 0.1 alone 0.12" in page.text("verdict")
    assert "noise 0.1 alone 0.12" in page.text("tiles")
    assert "gmm 0.24; noise 0.1 alone 0.12" in page.source
    assert "undefended" not in page.text("verdict") + page.text("tiles")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (numbers.mse(0.0), "0.0000"),
        (numbers.mse(0.001), "0.0010"),
        (numbers.mse(0.00042), "4.2e-04"),
        (numbers.points(-0.013), f"{numbers.MINUS}1.3"),
        (numbers.quantity(2_500_000), "2.5\u00a0M"),
        (numbers.quantity(12_000), "12.0\u00a0k"),
        (numbers.duration(59), "59\u00a0s"),
        (numbers.duration(125), "2\u00a0min\u00a005\u00a0s"),
        (numbers.duration(3 * 3600 + 7 * 60 + 50), "3\u00a0h\u00a007\u00a0min"),
        (numbers.span((0.1, 0.2)), "[0.1000, 0.2000]"),
        (numbers.size(999), "999\u00a0B"),
    ],
)
def test_how_numbers_are_written(written: str, expected: str) -> None:
    assert written == expected
