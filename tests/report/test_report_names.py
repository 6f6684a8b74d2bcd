"""Names of methods that differ in settings which are no strengths."""

from __future__ import annotations

import itertools

import pytest

from splitveil.report.methods import group_runs
from splitveil.report.run_files import read_run


@pytest.fixture
def named(tmp_path, write_run):
    """The methods of runs of which each has lines of its own in a section of its settings."""

    def make(*settings, section="train", **options):
        for number, lines in enumerate(settings):
            folder = write_run(tmp_path / "runs" / f"r{number}", images=1, **options)
            config = folder / "config.toml"
            config.write_text(config.read_text().replace(f"[{section}]", f"[{section}]\n{lines}"))
        return group_runs([read_run(folder) for folder in sorted((tmp_path / "runs").iterdir())])

    return make


def test_short_names_tell_settings_that_are_no_numbers(named):
    methods = named('schedule = "cosine"', 'schedule = "constant"')
    assert [method.short.en for method in methods] == ["gmm · schedule cosine", "gmm · schedule constant"]


def test_short_names_tell_options_of_the_surrogate(named):
    methods = named('form = "log"', 'form = "rate"', section="surrogate")
    assert [method.short.en for method in methods] == ["gmm · surrogate.form log", "gmm · surrogate.form rate"]


def test_a_strength_comes_first_and_settings_only_where_it_is_not_enough(named, tmp_path, write_run):
    write_run(tmp_path / "runs" / "other", weight=4.0, images=1)
    methods = named('schedule = "cosine"', 'schedule = "constant"')
    assert [method.short.en for method in methods] == [
        "gmm λ4",
        "gmm λ16 · schedule cosine",
        "gmm λ16 · schedule constant",
    ]


def test_the_other_model_without_a_defence_has_no_name_of_the_baseline(named):
    methods = named('schedule = "cosine"', 'schedule = "constant"', surrogate=None, sigma=0.05)
    shorts = [method.short.en for method in methods]
    assert shorts[0] == "noise 0.05 alone"
    assert shorts[1].startswith("σ 0.05 · schedule ")  # noqa: RUF001


def test_no_two_names_are_the_same_where_three_settings_differ(named):
    choices = itertools.product(("cosine", "constant"), (0.1, 0.2), (1, 2))
    methods = named(*(f'schedule = "{name}"\nwarmup = {share}\nramp = {epochs}' for name, share, epochs in choices))
    for names in ([method.short.en for method in methods], [method.label.en for method in methods]):
        assert len(set(names)) == 8
    assert methods[0].label.en.endswith(", schedule cosine, warmup 0.1, ramp 1")


def test_where_settings_do_not_tell_the_folder_does(named):
    """The first has nothing that the second lacks."""
    methods = named("", 'schedule = "cosine"')
    assert [method.short.en for method in methods] == ["gmm · r0", "gmm · schedule cosine"]
    assert methods[0].label.en == "gmm (corrected), weight 16, noise 0.025, r0"


def test_the_folder_does_too_where_settings_tell_from_some_only(named):
    methods = named('schedule = "cosine"', 'schedule = "cosine"\nramp = 2', 'schedule = "constant"')
    assert methods[0].short.en == "gmm · schedule cosine · r0"


def test_two_settings_are_enough_where_they_tell(named):
    methods = named('schedule = "cosine"\nwarmup = 0.1\nramp = 1', 'schedule = "constant"\nwarmup = 0.2\nramp = 2')
    assert methods[0].short.en == "gmm · schedule cosine · warmup 0.1"


def test_of_folders_with_one_name_those_above_tell(tmp_path, write_run):
    runs = []
    for place in ("a", "b"):
        folder = write_run(tmp_path / place / "same", images=1)
        for name in ("config.toml", "result.json"):
            (folder / name).unlink()
        runs.append(read_run(folder))
    methods = group_runs(runs)
    assert [method.short.en for method in methods] == ["same · a/same", "same · b/same"]
    assert [method.label.en for method in methods] == ["same, a/same", "same, b/same"]
