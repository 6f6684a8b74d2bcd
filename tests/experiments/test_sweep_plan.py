"""From a sweep recipe to cells: what is in the grid, what each cell is, and where it lies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from splitveil.core.code_version import BEARING, checksum
from splitveil.core.config import load_config
from splitveil.core.errors import ConfigError, SplitveilError, UnknownNameError
from splitveil.experiments.sweep.call import axis_text, parse_axis
from splitveil.experiments.sweep.cells import Cell, expand, seed_by_seed, still_made
from splitveil.experiments.sweep.recipe import load_sweep

SHARED = """
seed = 9
[model]
name = "tiny"
[defence.bottleneck]
channels = 4
[defence.noise]
sigma = 0.1
[surrogate]
name = "gmm"
[train]
epochs = 3
"""
FULL = (
    SHARED
    + """
[sweep]
seeds = [1, 2, 3]
data = ["fashion-mini", "cifar10"]
modes = ["inference_time", "training_time"]
[sweep.grid]
"defence.noise.sigma" = [0.01, 0.025]
[[sweep.method]]
name = "released"
surrogate = { name = "gmm", preset = "gmm.released" }
defence = { sca = {}, bottleneck = { channels = 2 } }
train = { privacy_weight = 16 }
[[sweep.method]]
name = "plain"
surrogate = "none"
defence = { bottleneck = false }
grid = { "train.lr" = [0.1, 0.2, 0.3] }
"""
)


def plan(tmp_path: Path, text: str, **given: Any) -> list[Cell]:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    return expand(load_sweep(path, **given))


def test_cells_are_method_x_data_x_grid_x_seed(tmp_path: Path) -> None:
    cells = plan(tmp_path, FULL)
    released = [cell for cell in cells if cell.method == "released"]
    plain = [cell for cell in cells if cell.method == "plain"]
    assert (len(released), len(plain)) == (2 * 2 * 3, 2 * 2 * 3 * 3)
    assert len({cell.id for cell in cells}) == len(cells)
    assert {(c.data, c.coordinates["defence.noise.sigma"], c.seed) for c in released} == {
        (data, sigma, seed) for data in ("fashion-mini", "cifar10") for sigma in (0.01, 0.025) for seed in (1, 2, 3)
    }
    first = released[0]
    assert (first.config.seed, first.config.data.name, first.config.sigma) == (1, "fashion-mini", 0.01)


def test_a_method_stands_over_the_shared_recipe(tmp_path: Path) -> None:
    cells = plan(tmp_path, FULL)
    released = next(cell.config for cell in cells if cell.method == "released")
    plain = next(cell.config for cell in cells if cell.method == "plain")
    assert list(released.defence) == ["bottleneck", "noise", "sca"]  # shared ones keep their place
    assert released.defence["bottleneck"].model_dump()["channels"] == 2
    assert released.train.privacy_weight == 16
    assert released.train.wlr == "released"  # what the preset recommends
    assert plain.surrogate is None
    assert list(plain.defence) == ["noise"]


MERGED = (
    SHARED.replace('name = "gmm"', 'name = "gmm"\nvar_threshold = 0.5')
    + """
[sweep]
data = [{ name = "fashion-mini", limit = 500, augment = false }]
[sweep.grid]
"train.lr" = [0.01, 0.02]
[[sweep.method]]
name = "own"
surrogate = { name = "gmm" }
defence = { noise = { law = "laplace" } }
data = { limit = 300 }
train = { epochs = 5 }
grid = { "train.lr" = [0.03] }
"""
)


def test_what_a_method_says_wins_and_what_it_does_not_say_is_shared(tmp_path: Path) -> None:
    (cell,) = plan(tmp_path, MERGED)  # its own strengths in place of the shared ones
    assert cell.coordinates == {"train.lr": 0.03}
    config = cell.config
    assert (config.train.lr, config.train.epochs) == (0.03, 5)
    assert (config.data.limit, config.data.augment) == (300, False)
    noise = config.defence["noise"].model_dump()
    assert (noise["law"], noise["sigma"]) == ("laplace", 0.1)
    assert config.surrogate is not None
    assert config.surrogate.model_dump()["var_threshold"] != 0.5  # a surrogate replaces the shared one as a whole


def test_an_axis_of_the_caller_replaces_the_recipes_and_a_methods_own(tmp_path: Path) -> None:
    (cell,) = plan(tmp_path, MERGED, grid={"train.lr": [0.07]})
    assert (cell.coordinates, cell.config.train.lr) == ({"train.lr": 0.07}, 0.07)
    cells = plan(tmp_path, FULL, methods=["plain"], seeds=[1], data=["cifar10"], grid={"train.momentum": [0.5]})
    assert {cell.coordinates["train.lr"] for cell in cells} == {0.1, 0.2, 0.3}  # others stay
    with pytest.raises(ConfigError, match=r"'train\.lr' = 'x'"):
        plan(tmp_path, MERGED, grid={"train.lr": [0.07, "x"]})


def test_cells_run_seed_by_seed(tmp_path: Path) -> None:
    """A sweep that is cut short has every method at the first seed."""
    cells = plan(tmp_path, FULL)
    assert [cell.seed for cell in cells[:3]] == [1, 2, 3]
    order = seed_by_seed(cells)
    assert [cell.seed for cell in order] == sorted(cell.seed for cell in cells)
    assert [cell.id for cell in order if cell.seed == 1] == [cell.id for cell in cells if cell.seed == 1]


def test_a_recipe_knows_the_cells_it_makes_and_lets_others_be(tmp_path: Path) -> None:
    """A cell of other settings must not stand in one table; one of a method that was not asked for this time may."""
    path = tmp_path / "recipe.toml"
    path.write_text(FULL)
    recipe = load_sweep(path)
    for cell in expand(recipe):
        assert still_made(recipe, cell.description())
    first = expand(recipe)[0].description()
    assert still_made(recipe, {**first, "method": "of another recipe"})
    assert not still_made(recipe, {**first, "seed": 2})  # the id is that of seed 1
    assert not still_made(recipe, {**first, "coordinates": {"defence.noise.sigma": 0.025}})
    narrowed = load_sweep(path, methods=["plain"], data=["cifar10"], seeds=[3])
    assert still_made(narrowed, first)  # still in the recipe: another method, data set and seed
    changed = load_sweep(path, methods=["plain"], overrides=["train.epochs=4"])
    assert not still_made(changed, first)


def test_a_shared_defence_may_be_taken_away_by_set(tmp_path: Path) -> None:
    cells = plan(tmp_path, FULL, overrides=["defence.bottleneck=false"])
    found = {cell.method: list(cell.config.defence) for cell in cells}
    assert found == {"released": ["bottleneck", "noise", "sca"], "plain": ["noise"]}  # a method may bring it back


def test_the_recipes_own_mode_comes_first_and_is_the_first_named_where_there_is_none(tmp_path: Path) -> None:
    assert plan(tmp_path, FULL)[0].modes == ("inference_time", "training_time")
    assert plan(tmp_path, FULL)[0].config.audit.mode == "inference_time"
    own = FULL.replace("[train]", '[audit]\nmode = "training_time"\n[train]')
    assert plan(tmp_path, own)[0].modes == ("training_time", "inference_time")
    assert plan(tmp_path, SHARED)[0].modes == ("training_time",)


def test_a_plain_recipe_is_one_cell_and_flags_make_it_a_grid(tmp_path: Path) -> None:
    (alone,) = plan(tmp_path, SHARED)
    assert (alone.method, alone.seed, alone.coordinates) == ("gmm", 9, {})
    cells = plan(
        tmp_path,
        SHARED,
        methods=["gmm.released", "gated:faithful", "none"],
        seeds=[4, 5],
        grid={"train.privacy_weight": [1, 2]},
        overrides=["train.epochs=7"],
    )
    assert len(cells) == 2 * 2 * 2 + 2  # none has no weight to vary
    assert all(cell.config.train.epochs == 7 for cell in cells)
    assert {cell.config.train.privacy_weight for cell in cells if cell.config.surrogate} == {1, 2}
    modes = {cell.method: cell.config.surrogate and cell.config.surrogate.model_dump() for cell in cells}
    assert modes["gmm.released"]["preset"] == "gmm.released"  # type: ignore[index]
    assert modes["gated:faithful"]["mode"] == "faithful"  # type: ignore[index]
    assert modes["none"] is None


def test_methods_of_the_recipe_are_chosen_by_name(tmp_path: Path) -> None:
    assert {cell.method for cell in plan(tmp_path, FULL, methods=["plain"])} == {"plain"}
    with pytest.raises(UnknownNameError, match="Did you mean 'plain'"):
        plan(tmp_path, FULL, methods=["plian"])


def test_the_address_holds_every_setting_and_no_label(tmp_path: Path) -> None:
    (cell,) = plan(tmp_path, SHARED)
    (again,) = plan(tmp_path, SHARED)
    assert cell.id == again.id
    for change in (
        "train.lr=0.049",
        "seed=10",
        "audit.tier=standard",
        "defence.noise.sigma=0.2",
        "surrogate.name=gated",
    ):
        assert plan(tmp_path, SHARED, overrides=[change])[0].id != cell.id, change
    noise_first = SHARED.replace("[defence.bottleneck]\nchannels = 4\n", "") + "[defence.bottleneck]\nchannels = 4\n"
    assert plan(tmp_path, noise_first)[0].id != cell.id  # the order of defences is a setting
    assert plan(tmp_path, SHARED + '[[sweep.method]]\nname = "another name"')[0].id == cell.id
    assert (
        plan(tmp_path, SHARED, modes=["training_time", "inference_time"])[0].id == cell.id
    )  # one more audit, same run


def test_equal_cells_stand_once_and_name_each_other(tmp_path: Path) -> None:
    twins = """
[[sweep.method]]
name = "a"
train = { privacy_weight = 16 }
[[sweep.method]]
name = "b"
grid = { "train.privacy_weight" = [8, 16] }
"""
    cells = plan(tmp_path, SHARED + twins, seeds=[1, 2])
    assert [cell.label for cell in cells if cell.also] == ["a fashion-mini seed 1", "a fashion-mini seed 2"]
    assert cells[0].also == ("b fashion-mini privacy_weight=16 seed 1",)
    assert len(cells) == 4
    assert plan(tmp_path, SHARED, seeds=[1, 1])[0].also == ("gmm fashion-mini seed 1",)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("[sweep]\nseed = [1]", "Did you mean 'seeds'"),
        ("[sweep]\nseeds = 1", "sweep.seeds"),
        ("[sweep]\nmodes = ['training']", "training_time"),
        ("[sweep.grid]\nseed = [1, 2]", "sweep.seeds"),
        ('[sweep.grid]\n"train.lr" = []', "no values"),
        ('[sweep.grid]\n"train.l" = [1]', r"In the cell gmm train\.l=1: Unknown key 'train\.l'"),
        ('[sweep.grid]\n"train.lr.x" = [1]', "Unknown key|valid"),
        ("[[sweep.method]]\nsurrogate = 'none'", r"'sweep\.method\.1\.name' is required"),
        ("[[sweep.method]]\nnam = 'a'", "Did you mean 'name'"),
        ("[[sweep.method]]\nname = 'a'\nsurogate = 'none'", "Did you mean 'surrogate'"),
        ("[sweep.method]\nname = 'a'", "two brackets"),
        ("[[sweep.method]]\nname = 'a'\n[[sweep.method]]\nname = 'a'", "Two methods"),
        ("[[sweep.method]]\nname = 'a'\nsurrogate = { name = 'gnm' }", "In the cell a: .*'gmm'"),
        ("[[sweep.method]]\nname = 'a'\ndefence = { nose = {} }", "'noise'"),
    ],
)
def test_a_slip_in_the_sweep_is_one_sentence(tmp_path: Path, more: str, words: str) -> None:
    with pytest.raises(SplitveilError, match=words) as caught:
        plan(tmp_path, f"{SHARED}\n{more}")
    assert caught.value.exit_code == 2


def test_a_mode_or_preset_that_would_be_a_mere_name_is_refused(tmp_path: Path) -> None:
    """The config.toml of a run states every option: a corrected surrogate would be called faithful."""
    whole = load_config(surrogate={"name": "gated"}).to_toml()
    with pytest.raises(ConfigError, match=r"In the cell gated .*: surrogate.mode=faithful would be a mere name"):
        plan(tmp_path, whole, grid={"surrogate.mode": ["corrected", "faithful"]})
    with pytest.raises(ConfigError, match=r"surrogate\.preset=gated\.raw would be a mere name"):
        plan(tmp_path, whole, overrides=["surrogate.preset=gated.raw"])
    cells = plan(tmp_path, '[surrogate]\nname = "gated"\n', grid={"surrogate.mode": ["corrected", "faithful"]})
    assert len(cells) == 2
    assert plan(tmp_path, whole, methods=["gated:faithful"])[0].config.surrogate == cells[1].config.surrogate


def test_slips_of_several_cells_are_told_at_once(tmp_path: Path) -> None:
    more = "[[sweep.method]]\nname = 'a'\nsurrogate = { name = 'gnm' }\n[[sweep.method]]\nname = 'b'\ntrain = { l = 1 }"
    with pytest.raises(ConfigError) as caught:
        plan(tmp_path, f"{SHARED}\n{more}", seeds=[1, 2])
    told = caught.value.message
    assert told.startswith("2 cells have mistakes in their settings. In the cell a: ")
    assert " In the cell b: Unknown key 'train.l'." in told
    with pytest.raises(ConfigError) as caught:  # one slip on the command line
        plan(tmp_path, SHARED, grid={"train.l": [1, 2]})
    slip = "In the cells gmm train.l=1; gmm train.l=2: Unknown key 'train.l'."
    assert str(caught.value) == f"2 cells have mistakes in their settings. {slip} Did you mean 'lr'?"
    with pytest.raises(ConfigError, match=r"9 cells have mistakes .* So have 1 more\.") as caught:
        plan(tmp_path, SHARED, grid={"train.lr": [f"x{n}" for n in range(9)]})
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([{"sigma": 0.1}, {"sigma": 0.2, "every": ["a,b"]}], '{sigma = 0.1},{sigma = 0.2, every = ["a,b"]}'),
        ([True, 1, "1", ""], 'true,1,"1",""'),
        ([None, "gmm.released"], "None,gmm.released"),  # Python may ask for it, though no command can
    ],
)
def test_whatever_an_axis_holds_has_words(values: list[Any], words: str) -> None:
    assert axis_text("a.b", values) == f"a.b={words}"
    assert (parse_axis(f"a.b={words}") == ("a.b", values)) is (None not in values)


def test_an_axis_as_typed_on_the_command_line() -> None:
    assert parse_axis("a.b=1,2.5,x") == ("a.b", [1, 2.5, "x"])
    assert parse_axis("a.b=[1, 2],[3]") == ("a.b", [[1, 2], [3]])
    with pytest.raises(ConfigError, match=r"section\.key=a,b,c"):
        parse_axis("a.b")


def test_the_code_version_follows_meaning_and_not_words(tmp_path: Path) -> None:
    def package(name: str, source: str, where: str = "surrogates/gmm.py") -> str:
        for folder in BEARING:
            (tmp_path / name / folder).mkdir(parents=True)
        (tmp_path / name / where).parent.mkdir(exist_ok=True)
        (tmp_path / name / where).write_text(source)
        return checksum(tmp_path / name)

    plain = package("a", "def f(x):\n    return x + 1\n")
    assert package("b", '"""Words."""\n\n\ndef f(x):\n    """More words."""\n    return x+1  # why\n') == plain
    assert package("c", "def f(x):\n    return x - 1\n") != plain
    assert package("d", "def f(x):\n    return x + 1\n", "surrogates/other.py") != plain
    assert package("e", "x = 1\n", "report/page.py") == package("f", "x = 2\n", "cli/page.py")


@pytest.mark.parametrize("weights", [[1, 2, 4], [0, 4]])
def test_the_weight_of_a_surrogate_that_is_not_there_makes_no_further_cells(tmp_path: Path, weights: list[int]) -> None:
    grid = {"train.privacy_weight": weights}
    none, gmm = (plan(tmp_path, SHARED, methods=[name], grid=grid) for name in ("none", "gmm"))
    assert len(gmm) == len(weights)
    (cell,) = none
    assert cell.also == tuple(f"none fashion-mini privacy_weight={weight} seed 9" for weight in weights[1:])
    (plain,) = plan(tmp_path, SHARED, methods=["none"])
    assert plain.id == cell.id


def test_without_stages_to_wait_for_weight_0_is_another_run(tmp_path: Path) -> None:
    grid = {"train.privacy_weight": [0, 1, 2]}
    cells = plan(tmp_path, SHARED + "progressive = true\n", methods=["none"], grid=grid)
    assert [len(cell.also) for cell in cells] == [0, 1]


def test_a_comparison_names_methods_of_the_sweep_and_attacks_that_exist(tmp_path: Path) -> None:
    def planned(compare: str) -> None:
        plan(tmp_path, FULL.replace("[sweep]\n", f"[sweep]\ncompare = {compare}\n"))

    planned('{ pairs = [["released", "plain"]] }')
    planned('{ baseline = "plain" }')
    with pytest.raises(UnknownNameError, match="names 'plane', no method") as told:
        planned('{ pairs = [["released", "plane"]] }')
    assert "plain" in str(told.value.hint)
    with pytest.raises(UnknownNameError, match="names 'plane', no method"):
        planned('{ baseline = "plane" }')
    planned('{ attacks = ["worst_case", "worst_case_once", "decoder.best_epoch", "membership"] }')
    with pytest.raises(UnknownNameError, match="no attack called 'membership: loss'") as told:  # nor has compare one
        planned('{ attacks = ["membership: loss"] }')
    assert "'membership'" in str(told.value.hint)
    with pytest.raises(UnknownNameError, match="no attack called 'decodr'"):
        planned('{ attacks = ["linear", "decodr.best_epoch"] }')
    for wrong in ('[["released"]]', '["released vs plain"]', '[["released", "plain", "plain"]]', '"plain"', "[[1, 2]]"):
        with pytest.raises(ConfigError, match="has an entry that is not two names"):
            planned(f"{{ pairs = {wrong} }}")
