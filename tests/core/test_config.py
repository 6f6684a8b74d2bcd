"""The configuration tree: precedence, errors that help, and a text form that loses nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from splitveil import data
from splitveil.core.config import load_config
from splitveil.core.errors import ConfigError, SplitveilError, UnknownNameError, UsageError
from splitveil.core.recipes import find_recipe, recipe_names
from splitveil.core.toml import read_toml
from splitveil.experiments.sweep.cells import expand
from splitveil.experiments.sweep.recipe import load_sweep

RECIPE = """
seed = 7
[data]
name = "fashion-mini"
[defence.bottleneck]
channels = 4
[defence.noise]
sigma = 0.1
[surrogate]
name = "gmm"
[train]
epochs = 9
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE)
    return path


def test_override_beats_recipe_beats_default(recipe: Path) -> None:
    config = load_config(recipe, ["train.lr=0.01", "train.epochs=3"])
    assert (config.train.epochs, config.train.lr, config.train.batch_size, config.seed) == (3, 0.01, 128, 7)


def test_a_recipe_is_found_by_name_and_by_path(recipe: Path) -> None:
    assert load_config("demo-fashion-mini").model.name == "tiny"
    assert load_config(str(recipe)) == load_config(recipe)


def test_resolved_text_parses_back_to_the_same_tree(recipe: Path, tmp_path: Path) -> None:
    config = load_config(recipe)
    again = tmp_path / "config.toml"
    again.write_text(config.to_toml())
    assert load_config(again) == config
    assert "warmup_epochs = 1" in config.to_toml()  # filled in from the surrogate's mode


def test_training_defaults_follow_the_mode(recipe: Path) -> None:
    assert load_config(recipe).train.wlr == "capped"
    assert load_config(recipe, ["surrogate.mode=faithful"]).train.wlr == "released"
    assert load_config(recipe, ["surrogate.preset=gmm.released"]).train.wlr == "released"


def test_defences_keep_the_order_in_which_they_are_written(recipe: Path) -> None:
    assert list(load_config(recipe).defence) == ["bottleneck", "noise"]


def test_a_defence_is_taken_away_by_false_and_added_by_an_empty_table(recipe: Path) -> None:
    changed = load_config(recipe, ["defence.noise=false", "defence.nopeek={}", "defence.topk=false"])
    assert list(changed.defence) == ["bottleneck", "nopeek"]
    assert changed.sigma == 0
    assert load_config(**read_toml(recipe) | {"defence": {"noise": False}}).defence == {}


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("train.epoch=3", "Did you mean 'epochs'"),
        ("surrogate.var_treshold=1", "Did you mean 'var_threshold'"),
        ("defence.noise.sigm=1", "Did you mean 'sigma'"),
        ("surrogate.K=3", "Did you mean 'num_clusters'"),
        ("surrogate.log_entropy=0", "Did you mean 'form'"),
        ("surrogate.attention_loss_scale=1", "Did you mean 'loss_scale'"),
        ("train.lambd=16", "Did you mean 'privacy_weight'"),
        ("trainn.epochs=3", "Did you mean 'train'"),
        ("train.epochs=0", "train.epochs"),
        ("train.epochs=true", "'train.epochs' = True: should be a number."),
        ("train.privacy_weight=false", "'train.privacy_weight' = False: should be a number."),
        ("surrogate.var_threshold=true", "var_threshold' = True: should be a number."),
        ("surrogate.init_power=true", "init_power' = True: should be a number."),
        ('surrogate={name="enhanced", scale_factors=true}', "scale_factors' = True: input should be a valid tuple."),
        ("train.privacy_weight=-1", "train.privacy_weight"),
        ("train.privacy_weight=nan", "train.privacy_weight"),
        ("train.compose=doubble", "single"),
        ("surrogate.preset=gmm.realeased", "gmm.released"),
        ("train=3", "must be a table"),
        ("defence.noise=true", "must be a table"),
        ("train.epochs", "section.key=value"),
        ("data.protocol=secret", "disjoint"),
        ("audit.attacks=[]", "names no attack"),
        ("audit.attacks=linear", "list of names"),
        ("audit.attacks.decoder.holdot=0", "Did you mean 'holdout'"),
        ("audit.attacks.decoder=3", "must be a table"),
        ("sweep.seeds=[1]", "splitveil sweep RECIPE"),
    ],
)
def test_a_wrong_key_or_value_is_one_sentence_that_helps(recipe: Path, override: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(recipe, [override])
    assert words in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("surrogate.name=gnm", "'gmm'"),
        ("model.name=vgg", "'vgg11'"),
        ("data.name=fashion-mni", "'fashion-mini'"),
        ("defence.nose.sigma=1", "'noise'"),
        ("defence.nose=false", "'noise'"),
        ('audit.attacks=["linaer"]', "'linear'"),
    ],
)
def test_an_unknown_component_suggests_the_nearest(recipe: Path, override: str, words: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        load_config(recipe, [override])
    assert words in str(caught.value)


def test_attacks_may_be_names_or_tables_and_keep_their_order(recipe: Path, tmp_path: Path) -> None:
    names = load_config(recipe, ['audit.attacks=["linear", "decoder"]'])
    assert list((names.audit.attacks or {}).items()) == [("linear", {}), ("decoder", {})]
    options = load_config(recipe, ["audit.attacks.decoder.holdout=0", "audit.sanity=false"])
    assert options.audit.attacks == {"decoder": {"holdout": 0}}
    for config in (names, options):
        again = tmp_path / "config.toml"
        again.write_text(config.to_toml())
        assert load_config(again) == config


def test_a_broken_or_missing_file_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text("seed = = 3")
    with pytest.raises(ConfigError, match=r"broken\.toml is not valid TOML.*line 1"):
        load_config(broken)
    with pytest.raises(ConfigError, match="There is no file"):
        load_config(tmp_path / "absent.toml")


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_that_ships_is_valid(name: str) -> None:
    if "sweep" in read_toml(find_recipe(name)):
        assert expand(load_sweep(name))
    else:
        load_config(find_recipe(name))
    assert find_recipe(name).read_text().startswith("# Claim")


def test_an_unknown_recipe_suggests_the_nearest() -> None:
    with pytest.raises(SplitveilError, match="demo-fashion-mini"):
        find_recipe("demo-fashion")


@pytest.mark.parametrize("name", ["nothere.toml", "./notes-table", "mine/recipe"])
def test_a_recipe_that_was_meant_as_a_file_is_a_missing_file(name: str) -> None:
    with pytest.raises(UsageError) as told:
        find_recipe(name)
    assert told.value.message == f"There is no file {name}."
    assert "Did you mean" not in told.value.hint


def test_a_slip_in_a_name_with_a_slash_is_still_a_slip() -> None:
    with pytest.raises(UnknownNameError, match="notes/n3-gated"):
        find_recipe("notes/n3-gatd")


@pytest.mark.parametrize("name", ["nofile.npz", "./nofolder", "pictures/mine"])
def test_a_data_name_that_was_meant_as_a_path_is_a_missing_one(name: str) -> None:
    for call in (lambda: load_config(data={"name": name}), lambda: data.create(name)):
        with pytest.raises(ConfigError) as told:
            call()
        assert told.value.message == f"There is no file or folder {name}."


@pytest.mark.parametrize("name", ["x" * 300, "/".join(["x" * 100] * 60), "x" * 3_000_000])
def test_a_data_name_too_long_for_a_path_is_one_short_sentence(name: str) -> None:
    with pytest.raises(ConfigError, match=r"'data\.name' is no data set") as told:
        load_config(data={"name": name})
    assert len(str(told.value)) < 500
    with pytest.raises(ConfigError, match="is no data set"):
        data.create(name)


@pytest.mark.parametrize("name", ["no\0where", "nowhere", ""])
def test_a_data_name_of_nothing_names_what_there_is(name: str) -> None:
    with pytest.raises(UnknownNameError):
        load_config(data={"name": name})


def test_keywords_stand_above_the_recipe_and_overrides_above_both() -> None:
    plain = load_config("demo-fashion-mini")
    config = load_config(
        "demo-fashion-mini", ["train.lr=0.5"], train={"epochs": 7, "lr": 0.25}, defence={"noise": {"sigma": 0.3}}
    )
    assert (config.train.epochs, config.train.lr, config.sigma) == (7, 0.5, 0.3)
    assert config.train.batch_size == plain.train.batch_size
    assert list(config.defence) == list(plain.defence)  # the order in which defences act is the recipe's


def test_a_tree_is_given_as_keywords() -> None:
    with pytest.raises(ConfigError, match=r"not a dict. Try load_config\(\*\*tree\)"):
        load_config({"seed": 1})  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "cut"), [("tiny", 4), ("vgg11", 4), ("resnet20", 5)])
def test_the_cut_is_resolved(name: str, cut: int) -> None:
    assert f"cut = {cut}\n" in load_config(model={"name": name}).to_toml()
    assert load_config(model={"name": name}) == load_config(model={"name": name, "cut": cut})
    assert load_config(model={"name": name, "cut": 2}).model.cut == 2


def test_a_folder_is_no_recipe(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder, not a recipe"):
        find_recipe(str(tmp_path))
    (tmp_path / "config.toml").write_text("seed = 1\n")
    with pytest.raises(UsageError, match=r"is a run folder, not a recipe.*config\.toml"):
        find_recipe(str(tmp_path))


@pytest.mark.parametrize("change", ["surrogate.mode=faithful", "surrogate.preset=gated.raw"])
def test_a_mode_or_preset_that_would_be_a_mere_name_is_refused(tmp_path: Path, change: str) -> None:
    """The config.toml of a run states every option: a corrected surrogate would be called faithful."""
    recipe = tmp_path / "config.toml"
    recipe.write_text(load_config(surrogate={"name": "gated"}).to_toml())
    with pytest.raises(ConfigError, match=f"{change} would be a mere name"):
        load_config(recipe, [change])
    key, _, value = change.partition("surrogate.")[2].partition("=")
    with pytest.raises(ConfigError, match="would be a mere name"):
        load_config(recipe, surrogate={key: value})
    recipe.write_text('[surrogate]\nname = "gated"\n')  # what the hint says
    assert load_config(recipe, [change]).surrogate == load_config(surrogate={"name": "gated", key: value}).surrogate


def test_another_surrogate_beside_options_that_it_does_not_know_is_told_what_to_do(tmp_path: Path) -> None:
    recipe = tmp_path / "config.toml"
    recipe.write_text(load_config(surrogate={"name": "gated"}).to_toml())
    with pytest.raises(ConfigError, match=r"name=slot_gated leaves options .*: alpha_grad, pool_power\.") as told:
        load_config(recipe, ["surrogate.name=slot_gated"])
    whole = 'surrogate={name = "slot_gated"}'
    assert f"--set '{whole}'" in told.value.hint
    assert load_config(recipe, [whole]).surrogate == load_config(surrogate={"name": "slot_gated"}).surrogate
    assert load_config(recipe, ["surrogate.name=none"]).surrogate is None
    recipe.write_text('[surrogate]\nname = "gated"\nloss_scale = 2.0\n')
    assert load_config(recipe, ["surrogate.name=gmm"]).surrogate.loss_scale == 2.0  # which both know


@pytest.mark.parametrize(("slip", "mended"), [("mode", "faithful"), ("preset", "gmm.diag")])
def test_a_misspelt_mode_or_preset_can_be_overridden(tmp_path: Path, slip: str, mended: str) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(f'[surrogate]\nname = "gmm"\n{slip} = "{mended}l"\n')
    surrogate = load_config(surrogate={"name": "gmm", slip: mended}).surrogate
    assert load_config(recipe, [f"surrogate.{slip}={mended}"]).surrogate == surrogate


def test_a_table_that_spells_out_a_mode_may_replace_it(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('[surrogate]\nname = "rate"\nmode = "faithful"\n')
    spelt = 'surrogate={name = "rate", memory = 0, unbiased = false}'
    assert load_config(recipe, [spelt]).surrogate.mode == "corrected"


def test_a_mode_or_preset_is_taken_where_it_acts_or_changes_nothing(tmp_path: Path) -> None:
    recipe = tmp_path / "config.toml"
    recipe.write_text(load_config(surrogate={"name": "gmm", "mode": "faithful"}).to_toml())
    again = load_config(recipe, ["surrogate.mode=faithful", "train.epochs=3"])
    assert again.surrogate == load_config(recipe).surrogate
    named = load_config(recipe, ["surrogate.preset=gmm.released"])  # the faithful mode under its other name
    assert named.surrogate.preset == "gmm.released"
    recipe.write_text('[surrogate]\nname = "gated"\ngates = "none"\n')
    assert load_config(recipe, ["surrogate.mode=faithful"]).surrogate.alpha_grad == "flow"
