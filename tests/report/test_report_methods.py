"""Labels, grouping over seeds, which run is undefended, which method is the headline, and the caveats."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

from splitveil.audit.remarks import no_use
from splitveil.core.catalogue import ATTACKS
from splitveil.report.method_names import short_names
from splitveil.report.methods import group_runs
from splitveil.report.run import Run
from splitveil.report.run_files import read_run
from splitveil.report.verdict import judge


def methods_of(root):
    return group_runs([read_run(folder) for folder in sorted(root.iterdir())])


def test_label_names_surrogate_mode_weight_and_noise(demo):
    undefended, defended = methods_of(demo)
    assert defended.label.en == "gmm (corrected), weight 16, noise 0.025"
    assert defended.label.zh == "gmm (corrected)，权重 16，噪声 0.025"  # noqa: RUF001
    assert undefended.label.en == "undefended"
    assert (undefended.letter, defended.letter) == ("A", "B")


def test_least_noise_without_surrogate_is_undefended(tmp_path, write_run):
    write_run(tmp_path / "a", surrogate=None, sigma=0.3)
    write_run(tmp_path / "b", surrogate=None, sigma=0.1)
    write_run(tmp_path / "c", surrogate="gmm", sigma=0.0)
    (chosen,) = [method for method in methods_of(tmp_path) if method.undefended]
    assert chosen.runs[0].name == "b"
    assert (chosen.label.en, chosen.short.en) == ("noise 0.1", "noise 0.1 alone")  # noise is a defence


def test_a_run_named_undefended_wins(tmp_path, write_run):
    write_run(tmp_path / "noise-free", surrogate=None, sigma=0.0)
    write_run(tmp_path / "undefended", surrogate=None, sigma=0.025)
    assert next(m for m in methods_of(tmp_path) if m.undefended).runs[0].name == "undefended"


def test_weight_zero_counts_as_no_surrogate(tmp_path, write_run):
    write_run(tmp_path / "a", surrogate="gmm", weight=0.0, sigma=0.0)
    write_run(tmp_path / "b", surrogate="gmm", weight=1.0, sigma=0.0)
    assert next(m for m in methods_of(tmp_path) if m.undefended).runs[0].name == "a"


def test_another_defence_is_not_undefended(tmp_path, write_run):
    folder = write_run(tmp_path / "a", surrogate=None)
    with (folder / "config.toml").open("a") as file:
        file.write("[defence.nopeek]\nweight = 0.5\n")
    (method,) = methods_of(tmp_path)
    assert not method.undefended
    assert method.label.en == "nopeek 0.5, noise 0.025"


def test_seeds_form_one_method_with_mean_and_spread(tmp_path, write_run):
    for seed, mse, accuracy in ((1, 0.02, 0.80), (2, 0.03, 0.82), (3, 0.04, 0.87)):
        write_run(tmp_path / f"s{seed}", seed=seed, mse=mse, accuracy=accuracy)
    (method,) = methods_of(tmp_path)
    assert len(method.runs) == 3
    assert method.leak.mse == pytest.approx(0.03)
    assert method.accuracy == pytest.approx(0.83)
    assert method.spread(lambda run: run.audit.leak.mse) == pytest.approx(0.01)
    assert method.representative.name == "s1"  # the seed that leaks most stands for the method


def test_equal_labels_are_told_apart_by_the_key_that_differs(tmp_path, write_run):
    write_run(tmp_path / "a", epochs=10)
    write_run(tmp_path / "b", epochs=20)
    labels = [method.label.en for method in methods_of(tmp_path)]
    assert labels == [f"gmm (corrected), weight 16, noise 0.025, epochs {n}" for n in (10, 20)]


def test_runs_without_config_stay_apart(tmp_path):
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "result.json").write_text(json.dumps({"accuracy_last": 0.5}))
    assert len(methods_of(tmp_path)) == 2


def test_letters_continue_after_z():
    runs = [Run(path=None, name=f"r{n}") for n in range(29)]  # type: ignore[arg-type]
    letters = [method.letter for method in group_runs(runs)]
    assert letters[:2] + letters[25:] == ["A", "B", "Z", "AA", "AB", "AC"]


def test_headline_is_the_safest_that_costs_at_most_three_points(tmp_path, write_run):
    write_run(tmp_path / "a", surrogate=None, sigma=0.0, accuracy=0.90, mse=0.01)
    write_run(tmp_path / "b", weight=4.0, accuracy=0.89, mse=0.02)
    write_run(tmp_path / "c", weight=16.0, accuracy=0.88, mse=0.03)
    write_run(tmp_path / "d", weight=64.0, accuracy=0.80, mse=0.08)
    verdict = judge(methods_of(tmp_path))
    assert verdict.headline is not None
    assert verdict.headline.runs[0].name == "c"


def test_without_an_undefended_run_the_headline_is_near_the_most_accurate(tmp_path, write_run):
    write_run(tmp_path / "b", weight=4.0, accuracy=0.89, mse=0.02)
    write_run(tmp_path / "c", weight=16.0, accuracy=0.87, mse=0.03)
    write_run(tmp_path / "d", weight=64.0, accuracy=0.60, mse=0.04)
    verdict = judge(methods_of(tmp_path))
    assert verdict.undefended is None
    assert verdict.headline is not None
    assert verdict.headline.runs[0].name == "c"
    assert (verdict.cheap, verdict.defended) == (2, 3)


def test_accuracies_on_other_data_make_no_method_expensive(tmp_path, write_run, build):
    write_run(tmp_path / "b", accuracy=0.89, mse=0.02)
    write_run(tmp_path / "d", weight=64.0, accuracy=0.70, mse=0.05)
    folder = write_run(tmp_path / "c", accuracy=0.60, mse=0.04)
    for name in ("config.toml", "manifest.json"):
        text = (folder / name).read_text()
        assert '"fashion-mini"' in text
        (folder / name).write_text(text.replace('"fashion-mini"', '"harder"'))
    verdict = judge(methods_of(tmp_path))
    assert verdict.headline is not None
    assert verdict.headline.runs[0].name == "c"
    assert "most accurate on the same data." in build(tmp_path).text("which")


def test_three_points_are_at_most_three_points(tmp_path, write_run):
    write_run(tmp_path / "a", surrogate=None, sigma=0.0, accuracy=0.90, mse=0.01)
    write_run(tmp_path / "b", weight=4.0, accuracy=0.89, mse=0.02)
    write_run(tmp_path / "c", weight=16.0, accuracy=0.87, mse=0.03)
    assert judge(methods_of(tmp_path)).cheap == 2


def test_headline_when_everything_is_expensive(tmp_path, write_run):
    write_run(tmp_path / "a", surrogate=None, sigma=0.0, accuracy=0.90, mse=0.01)
    write_run(tmp_path / "b", accuracy=0.70, mse=0.05)
    verdict = judge(methods_of(tmp_path))
    assert verdict.headline is not None
    assert verdict.headline.runs[0].name == "b"


def test_a_model_that_only_names_the_most_frequent_class_is_not_the_safest(tmp_path, write_run):
    """On unbalanced data its accuracy looks like a working one's; it leaks least of all."""
    write_run(tmp_path / "open", surrogate=None, sigma=0.0, accuracy=0.84)
    write_run(tmp_path / "works", weight=4.0, accuracy=0.84, mse=0.03)
    folder = write_run(tmp_path / "idle", weight=64.0, accuracy=0.83, mse=0.09)
    assert judge(methods_of(tmp_path)).headline.runs[0].name == "idle"  # as long as nobody says so
    audit = folder / "audit" / "audit.json"  # an audit alone knows it too, and one of an earlier version says it
    warned = {"warnings": no_use(0.5, torch.zeros(40, dtype=torch.long))}
    for path, said in ((folder / "result.json", {"works": False}), (audit, {"works": False}), (audit, warned)):
        written = path.read_text()
        path.write_text(json.dumps(json.loads(written) | said))
        verdict = judge(methods_of(tmp_path))
        assert (verdict.headline.runs[0].name, verdict.defended) == ("works", 1)
        assert "most frequent class, and therefore not considered above: idle." in caveats(tmp_path)
        path.write_text(written)
    assert "most frequent" not in caveats(tmp_path)


def test_one_idle_seed_of_three_is_enough_to_doubt_their_mean(tmp_path, write_run):
    write_run(tmp_path / "works", weight=4.0, accuracy=0.84, mse=0.03)
    for seed in (1, 2, 3):
        write_run(tmp_path / f"strong-{seed}", weight=64.0, accuracy=0.83, mse=0.09 if seed == 2 else 0.02, seed=seed)
    path = tmp_path / "strong-2" / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"works": False}))
    assert judge(methods_of(tmp_path)).headline.runs[0].name == "works"
    assert "therefore not considered above: strong-2." in caveats(tmp_path)
    shutil.rmtree(tmp_path / "works")  # with nothing else to show, the mean is shown with a warning
    assert "makes this model look safer than it is: strong-2 is no better" in caveats(tmp_path)


def test_where_no_model_works_the_page_says_so_first(tmp_path, write_run):
    path = write_run(tmp_path / "idle") / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"works": False}))
    verdict = judge(methods_of(tmp_path))
    assert verdict.headline.runs[0].name == "idle"
    assert verdict.caveats[0].en.startswith("This model is no better than always naming the most frequent class")


def test_a_weight_without_a_surrogate_is_in_no_name(tmp_path, write_run):
    for name, options in {
        "a": {"surrogate": "gmm", "weight": 4.0, "sigma": 0.1},
        "b": {"surrogate": "gmm", "weight": 16.0, "sigma": 0.1},
        "c": {"surrogate": None, "sigma": 0.1},
        "d": {"surrogate": None, "sigma": 0.2},
    }.items():
        folder = write_run(tmp_path / name, **options)
        ours = "ours" if options["surrogate"] else "noise only"
        (folder / "cell.json").write_text(json.dumps({"method": ours}))
    names = short_names([read_run(folder) for folder in sorted(tmp_path.iterdir())])
    assert names == ["ours λ4 σ0.1", "ours λ16 σ0.1", "noise only σ0.1", "noise only σ0.2"]  # noqa: RUF001


def caveats(root):
    return " ".join(caveat.en for caveat in judge(methods_of(root)).caveats)


def test_caveat_one_seed_and_three_seeds(tmp_path, write_run):
    write_run(tmp_path / "u", surrogate=None, sigma=0.0, mse=0.01)
    write_run(tmp_path / "s1", seed=1)
    assert "One seed" in caveats(tmp_path)
    write_run(tmp_path / "s2", seed=2)
    assert "2 seeds" in caveats(tmp_path)
    write_run(tmp_path / "s3", seed=3)
    assert "seed" not in caveats(tmp_path)


def test_an_undefended_model_alone_is_warned_of_once(tmp_path, write_run):
    change_audit(write_run(tmp_path / "u", surrogate=None, sigma=0.0), accuracy=0.2)
    assert caveats(tmp_path).count("but the audit measured 20.0") == 1


def test_caveat_the_audit_measured_another_accuracy(tmp_path, write_run):
    folder = write_run(tmp_path / "a", accuracy=0.962)
    change_audit(folder, accuracy=0.857, num_images=300)
    assert "a states 96.2\u00a0% accuracy, but the audit measured 85.7\u00a0% on the 300 pictures" in caveats(tmp_path)
    # one point and three standard errors: 0.01 + 3 * sqrt(0.935 * 0.065 / 300) = 0.053
    change_audit(folder, accuracy=0.962 - 0.055)
    assert "states" in caveats(tmp_path)
    change_audit(folder, accuracy=0.962 - 0.050)
    assert "states" not in caveats(tmp_path)
    change_audit(folder, accuracy=0.5, accuracy_of="auditor")  # of an endpoint: said in another sentence
    assert "states" not in caveats(tmp_path)


def test_what_was_not_tried_is_said_in_the_first_screen_and_explained(tmp_path, write_run, build):
    folder = write_run(tmp_path / "a", attacks=("decoder", "linear", "average", "retrieval"))
    change_audit(folder, inference={"attribute": {"findings": {}}})
    untried = "decoder_strong, optimize, refine, gan, prior, substitute, membership"
    assert f"Not tried, see the end of “Attack by attack”: {untried}." in caveats(tmp_path)
    page = build(tmp_path).text()
    page = page.partition("Nobody knows what these attacks would find here.")[2]
    assert "Asks of each candidate picture whether the model was trained on it." in page
    assert "Reads properties of the picture" not in page


def test_nothing_is_said_where_every_attack_was_tried(tmp_path, write_run, build):
    pictures = tuple(name for name in ATTACKS.names() if name not in ("membership", "attribute"))
    folder = write_run(tmp_path / "a", attacks=pictures, images=1)
    change_audit(folder, inference={key: {"findings": {}} for key in ("membership", "attribute")})
    assert "Not tried" not in caveats(tmp_path)
    assert "Not tried" not in build(tmp_path).text()


def test_caveat_attack_did_not_break_the_undefended_model(tmp_path, write_run):
    write_run(tmp_path / "a", surrogate=None, sigma=0.0, mse=0.06)
    write_run(tmp_path / "b", mse=0.07)
    assert "did not break the undefended model" in caveats(tmp_path)


def test_caveat_no_undefended_run(tmp_path, write_run):
    write_run(tmp_path / "b")
    assert "No undefended run" in caveats(tmp_path)


@pytest.mark.parametrize(
    ("key", "words"), [("protocol", "different protocols"), ("tier", "differ in tier"), ("mode", "modes")]
)
def test_caveat_mixed_audits(demo, key, words):
    path = demo / "defended" / "audit/audit.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: "other"}))
    assert words in caveats(demo)


def test_caveat_unequal_attacks(tmp_path, write_run):
    write_run(tmp_path / "a", surrogate=None, sigma=0.0, mse=0.01)
    write_run(tmp_path / "b", attacks=("decoder",))
    assert "Not every run faced the same attacks" in caveats(tmp_path)


def test_without_worst_case_the_strongest_attack_speaks(demo):
    path = demo / "defended" / "audit/audit.json"
    audit = json.loads(path.read_text())
    del audit["worst_case"]
    path.write_text(json.dumps(audit))
    run = read_run(demo / "defended")
    assert run.audit.leak.mse == min(attack["mse"] for attack in audit["attacks"].values())


def test_accuracy_falls_back_to_the_curve(demo):
    (demo / "defended" / "result.json").unlink()
    last = json.loads((demo / "defended" / "metrics.jsonl").read_text().splitlines()[-1])
    assert read_run(demo / "defended").accuracy == last["accuracy"]


def test_a_sweeps_cell_has_the_sweeps_name(tmp_path, write_run):
    for weight in (4.0, 16.0):
        for seed in (1, 2):
            folder = write_run(tmp_path / f"{weight:g}-{seed}", weight=weight, seed=seed, images=1)
            (folder / "cell.json").write_text(json.dumps({"id": folder.name, "method": "<ours>"}))
    methods = methods_of(tmp_path)
    assert [method.label.en for method in methods] == [
        "<ours>, weight 16, noise 0.025",
        "<ours>, weight 4, noise 0.025",
    ]
    assert [method.short.en for method in methods] == ["<ours> λ16", "<ours> λ4"]
    assert [len(method.runs) for method in methods] == [2, 2]


def test_the_interval_over_seeds_is_that_of_compare(tmp_path, write_run):
    for seed, accuracy in ((1, 0.80), (2, 0.82), (3, 0.84)):
        write_run(tmp_path / f"s{seed}", seed=seed, accuracy=accuracy, images=1)
    (method,) = methods_of(tmp_path)
    half = 4.302653 * 0.02 / 3**0.5  # t(2) sd / sqrt(n)
    assert method.interval(lambda run: run.accuracy) == pytest.approx((0.82 - half, 0.82 + half), rel=1e-5)
    one = methods_of_one(tmp_path / "s1")
    assert one.interval(lambda run: run.accuracy) is None


def methods_of_one(folder):
    return group_runs([read_run(folder)])[0]


def test_a_sweeps_own_name_stands_alone_where_it_suffices(tmp_path, write_run):
    for folder, method, weight in (("a", "nopeek, noise .025", 4), ("b", "gmm", 8), ("c", "gmm", 16)):
        run = write_run(tmp_path / folder, weight=weight)
        (run / "cell.json").write_text(json.dumps({"method": method, "coordinates": {}}))
    labels = [method.label.en for method in methods_of(tmp_path)]
    assert labels == ["nopeek, noise .025", "gmm, weight 8, noise 0.025", "gmm, weight 16, noise 0.025"]


def test_the_warnings_of_an_audit_are_one_note(tmp_path, write_run):
    folder = write_run(tmp_path / "a")
    path = folder / "audit" / "audit.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "warnings": ["Too few.", "Too short."]}))
    notes = [note.en for note in read_run(folder).notes]
    assert "the audit warns: Too few; Too short" in notes


def test_caveat_no_undefended_run_where_the_attacks_proved_themselves(tmp_path, write_run):
    change_audit(write_run(tmp_path / "b"), sanity={"passed": True})
    assert "what this network leaks without its defence" in caveats(tmp_path)
    assert "nothing shows that the attacks work" not in caveats(tmp_path)
    write_run(tmp_path / "c", seed=7)  # another seed, whose audit left that out
    assert "nothing shows that the attacks work" in caveats(tmp_path)


NO_GAIN = "It is not shown that this leaks less than undefended"


def test_caveat_pictures_that_do_not_show_a_gain(tmp_path, write_run):
    write_run(tmp_path / "a", surrogate=None, sigma=0.0, mse=0.01)
    change_audit(tmp_path / "a", worst_case={"mse": 0.010, "ssim": 0.9, "mse_ci95": [0.009, 0.011]})
    run = write_run(tmp_path / "b")
    for low, told in ((0.0109, True), (0.0111, False)):  # touches the other interval, or lies above it
        change_audit(run, worst_case={"mse": 0.012, "ssim": 0.8, "mse_ci95": [low, 0.013]})
        assert (NO_GAIN in caveats(tmp_path)) is told


@pytest.mark.parametrize(
    ("gains", "told"),
    [
        ((0.001, 0.002, 0.003), True),  # 0.002 ± 4.303·0.001/√3: from -0.0005
        ((0.003, 0.004, 0.005), False),  # from 0.0015
        ((-0.003, -0.004, -0.005), True),
    ],
)
def test_caveat_seeds_that_do_not_show_a_gain(tmp_path, write_run, gains, told):
    """Seed by seed: the seeds differ more than the methods do."""
    for seed, (base, gain) in enumerate(zip((0.010, 0.030, 0.050), gains, strict=True)):
        bare = write_run(tmp_path / f"a{seed}", surrogate=None, sigma=0.0, seed=seed)
        change_audit(bare, worst_case={"mse": base, "ssim": 0.9})
        defended = write_run(tmp_path / f"b{seed}", seed=seed)
        change_audit(defended, worst_case={"mse": base + gain, "ssim": 0.8})
    assert (NO_GAIN in caveats(tmp_path)) is told


def test_caveat_a_baseline_with_noise_is_called_so(tmp_path, write_run):
    write_run(tmp_path / "a", surrogate=None, sigma=0.1, mse=0.01)
    write_run(tmp_path / "b")
    assert "The model beside the headline has noise 0.1" in caveats(tmp_path)


def test_caveat_runs_that_differ_in_pictures_or_length(tmp_path, write_run):
    write_run(tmp_path / "a", surrogate=None, sigma=0.0, mse=0.01)
    short = write_run(tmp_path / "b")
    assert "different numbers" not in caveats(tmp_path)
    change_audit(short, num_images=100)
    config = short / "config.toml"
    config.write_text(config.read_text().replace("[data]", "[data]\nlimit = 500").replace("epochs = 12", "epochs = 3"))
    said = caveats(tmp_path)
    assert "different numbers of pictures (100, 2,000)" in said
    assert "data.limit: 500, all" in said
    assert "epochs (3, 12)" in said


def test_floor_is_that_of_the_headline(tmp_path, write_run):
    other = write_run(tmp_path / "a", weight=4.0, mse=0.01)
    write_run(tmp_path / "b", mse=0.02)
    change_audit(other, floors={"mean_image": {"mse": 0.5, "ssim": 0.1}})
    verdict = judge(methods_of(tmp_path))
    assert verdict.headline is not None
    assert verdict.headline.runs[0].name == "b"
    assert verdict.floor.mse == json.loads((tmp_path / "b/audit/audit.json").read_text())["floors"]["mean_image"]["mse"]


def test_of_equal_attacks_the_one_that_needs_least_is_the_strongest(demo):
    attacks = json.loads((demo / "defended/audit/audit.json").read_text())["attacks"]
    same = attacks["decoder"]
    change_audit(demo / "defended", attacks={"average": same | {"threat_model": ["a", "b", "c", "d"]}, "decoder": same})
    strongest = read_run(demo / "defended").audit.strongest
    assert strongest is not None
    assert strongest.name == "decoder"


def test_an_audit_alone_is_not_called_unfinished(demo, build):
    change_audit(demo / "defended", data="my faces")
    for name in ("config.toml", "manifest.json", "result.json", "metrics.jsonl"):
        (demo / "defended" / name).unlink()
    run = read_run(demo / "defended")
    assert run.data_name == "my faces"
    assert run.notes[0].en.startswith("only an audit is here")
    others = [note.en for note in run.notes if not note.en.startswith("audit/card.json is missing")]
    assert not any("missing" in note or "finished" in note for note in others)
    assert build(demo / "defended").faults == []


def change_audit(run, **values):
    path = run / "audit" / "audit.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_a_lone_cell_of_a_sweep_tells_its_strength_in_full(tmp_path, write_run):
    cell = write_run(tmp_path / "a", weight=4.0, sigma=0.1)
    (cell / "cell.json").write_text(json.dumps({"method": "mine"}))
    run = read_run(cell)
    assert group_runs([run])[0].label.en == "mine"
    assert group_runs([run], in_full=True)[0].label.en == "mine, weight 4, noise 0.1"


def test_the_floor_is_the_mean_over_the_seeds_as_the_error_beside_it(tmp_path, write_run):
    for seed, mse in ((1, 0.06), (2, 0.08)):
        run = write_run(tmp_path / f"s{seed}", seed=seed)
        change_audit(run, floors={"mean_image": {"mse": mse, "ssim": mse, "psnr": 100 * mse}})
    floor = judge(methods_of(tmp_path)).floor
    assert (floor.mse, floor.ssim, floor.psnr) == pytest.approx((0.07, 0.07, 7.0))


def test_what_training_counted_is_told(tmp_path, write_run):
    """A surrogate that never acted is in the table as a method of its own: the page must say what it is."""
    run = write_run(tmp_path / "a")
    write_run(tmp_path / "b", seed=2)
    assert "worry" not in caveats(tmp_path)
    result = json.loads((run / "result.json").read_text())
    counts = {"runs in which the surrogate acted in no epoch": 1, "steps skipped": 0}
    (run / "result.json").write_text(json.dumps(result | {"guards": counts}))
    (method,) = methods_of(tmp_path)
    assert "something to worry about with a (see" in caveats(tmp_path)
    told = [[note.en for note in one.notes if "counted" in note.en] for one in method.runs]
    assert sorted(told) == [[], ["training counted: runs in which the surrogate acted in no epoch (1)"]]


def test_notes_that_runs_share_stand_once_with_all_their_names(tmp_path, write_run, build):
    for name, warnings in (("a", ["Too few."]), ("b", ["Too few."]), ("c", ["Too short."])):
        change_audit(write_run(tmp_path / "runs" / name, seed=ord(name)), warnings=warnings)
    notes = build(tmp_path / "runs").text("notes")
    assert notes.count("Too few") == 1
    assert notes.count("Too short") == 1
    assert "a, b:" in notes
    assert "c:" in notes
