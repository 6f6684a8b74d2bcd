"""The tables of numbers in SPEC 4.5, 6.7, 6.9, 8.1 and 9.1, against what a recipe that says nothing really gets."""

from __future__ import annotations

from typing import Any

import pytest

import splitveil as sv
from splitveil.attacks.decoder import DecoderOptions
from splitveil.core.config import load_config
from splitveil.core.sections import Train
from splitveil.defences.noise import NoiseOptions
from splitveil.defences.sca import ScaOptions

# SPEC 6.9: compose, w_lr, s, warmup_epochs, then the options
FAITHFUL: dict[str, tuple[str, str, float, int, dict[str, Any]]] = {
    "gmm": (
        "single", "released", 1.0, 0,
        {
            "num_clusters": None, "sigmoid_output": True, "max_steps": 50, "gamma": None, "var_threshold": 0.125,
            "kappa": 10.0, "rho_max": 0.99, "form": "hinge_scalar", "aggregation": "released", "init_power": 1,
            "stats_index": "sample", "align": "padded", "em_steps": 30, "class_size": "nominal", "monitor": 10,
            "update_weights": False, "persist": "off", "class_weight": "equal", "bank_images": "augmented",
        },
    ),
    "slot_cross": (
        "direct", "off", 1.0, 0,
        {
            "num_slots": 8, "num_iterations": 3, "num_heads": 8, "hidden": 128, "assign_temp": 0.1, "dropout": 0.1,
            "slot_axis": "tokens", "match": "project_slots", "assign": "hard", "centroid_grad": "flow", "form": "log",
            "norm": "mean", "classifier": "attention", "pool": "enhanced", "post_norm": False, "hinge": False,
            "slot_noise": "sample", "slot_init": "shared", "memory": 0, "proj_dim": 0, "class_weight": "equal",
            "surrogate_update": "minimise", "slot_temp": "one", "attn_logit_scale": 1.0,
        },
    ),
    "gated": (
        "single", "released", 0.1, 5,
        {
            "gamma": 1e-6, "eps_var": 1e-6, "snr_thresh": 0.3, "snr_sharp": 10.0, "softplus_beta": 1.0,
            "margin_m": 0.1, "class_gate_a": 10.0, "class_gate_b": 0.05, "pool_power": 0.0, "ln_affine": True,
            "learnable_scalars": False, "var_threshold": 0.125, "gates": "all", "hinge": "softplus", "space": "norm",
            "base": "threshold", "gate_grad": "flow", "normalise": False, "snr": "notes", "class_gate": "on",
            "memory": 0, "proj_dim": 0, "surrogate_update": "minimise", "class_weight": "share",
        },
    ),
    "slot_gated": (
        "single", "released", 0.25, 3,
        {
            "num_slots": 8, "num_iterations": 3, "num_heads": 4, "gamma": 1e-6, "eps_var": 1e-4, "snr_thresh": 0.25,
            "snr_sharp": 14.0, "softplus_beta": 1.5, "margin_m": 0.05, "class_gate_a": 12.0, "class_gate_b": 0.04,
            "slot_power": 2.5, "assign_temp": 12.0, "learnable_scalars": True, "constrain": "none",
            "early_shut": "notes", "early_shut_steps": 100, "early_hard_thresh": 0.5, "early_gate_thresh": 0.6,
            "gate_ema": 0.9, "alpha_xattn": 0.1, "alpha_ffn": 0.1, "token_norm": "none", "slot_temp": "quarter",
            "qkv_proj": True, "assign_source": "normalised", "normalise": False, "var_threshold": 0.125,
            "slot_noise": "sample", "slot_init": "shared", "memory": 0, "surrogate_update": "minimise",
        },
    ),
    "enhanced": (
        "direct", "off", 1.0, 0,
        {
            "num_slots": 12, "num_iterations": 4, "num_heads": 8, "num_clusters": 3, "dropout": 0.1,
            "tokens": "class", "scale_factors": (0.5, 2.0, 1.0), "complexity_gate": "scalar", "gate_threshold": 0.1,
            "dynamic_weight": 0.5, "temperature_decay": 0.2, "competition": "final", "bank_space": "enhanced",
            "distance": "notes", "cos_weight": 0.1, "log_entropy": True, "parallel_alpha": 0.5, "slot_axis": "tokens",
            "complexity_axis": "coordinates", "memory": 0, "base": "notes", "space": "enhanced", "max_steps": 50,
        },
    ),
}  # fmt: skip
ATTENTION = {"surrogate_update": "likelihood", "memory": 64, "proj_dim": 64}
PER_SLOT = {"slot_init": "per_slot", "token_norm": "mean"}
# SPEC 9.1; every column has compose single, wlr capped, s 1, warmup_epochs 1
CORRECTED: dict[str, dict[str, Any]] = {
    "gmm": {
        "form": "gauss_diag", "num_clusters": 3, "aggregation": "paper", "stats_index": "class", "align": "true",
        "kappa": 1.0, "rho_max": 1.0, "update_weights": True, "memory": 0, "class_weight": "equal",
    },
    "slot_cross": ATTENTION | PER_SLOT | {
        "space": "raw", "form": "rate", "ln_affine": False, "slot_axis": "slots", "slot_temp": "one",
        "assign": "soft", "centroid_grad": "detach", "classifier": "cloud", "class_weight": "equal",
    },
    "gated": ATTENTION | {
        "space": "raw", "base": "rate", "ln_affine": False, "learnable_scalars": False, "gates": "none",
        "eps_var": 1e-8, "class_weight": "share", "class_gate": "off",
    },
    "slot_gated": ATTENTION | PER_SLOT | {
        "space": "raw", "base": "rate", "ln_affine": False, "learnable_scalars": False, "gates": "none",
        "slot_temp": "one", "assign": "soft", "centroid_grad": "detach", "early_shut": "off", "eps_var": "tau",
        "distance": "cosine", "class_weight": "share", "class_gate": "off",
    },
    "enhanced": ATTENTION | PER_SLOT | {
        "space": "raw", "base": "rate", "slot_axis": "slots", "assign": "hard", "centroid_grad": "frozen",
        "distance": "corrected", "class_weight": "equal",
    },
}  # fmt: skip


def differences(found: Any, expected: dict[str, Any]) -> dict[str, Any]:
    return {key: getattr(found, key) for key, value in expected.items() if getattr(found, key) != value}


@pytest.mark.parametrize("name", FAITHFUL)
def test_faithful_defaults_are_those_of_spec_6_9(name: str) -> None:
    compose, wlr, scale, warmup, options = FAITHFUL[name]
    config = load_config(surrogate={"name": name, "mode": "faithful"})
    assert (config.train.compose, config.train.wlr, config.train.warmup_epochs) == (compose, wlr, warmup)
    assert config.train.privacy_every == 1
    assert config.surrogate is not None
    assert config.surrogate.loss_scale == scale
    assert differences(config.surrogate, options) == {}


@pytest.mark.parametrize("name", CORRECTED)
def test_corrected_defaults_are_those_of_spec_9_1(name: str) -> None:
    config = load_config(surrogate={"name": name})
    assert config.surrogate is not None
    assert config.surrogate.mode == "corrected"
    assert (config.train.compose, config.train.wlr, config.train.warmup_epochs) == ("single", "capped", 1)
    assert config.surrogate.loss_scale == 1.0
    assert differences(config.surrogate, CORRECTED[name]) == {}


def test_the_earlier_scalars_are_those_of_spec_4_5() -> None:
    options = sv.surrogates.create(
        "slot_gated", feature_shape=(8,), num_classes=2, sigma=0.1, preset="slot_gated.earlier"
    ).options
    earlier = {
        "assign_temp": 10.0, "slot_power": 2.0, "snr_thresh": 0.3, "snr_sharp": 10.0, "softplus_beta": 1.0,
        "margin_m": 0.1, "class_gate_a": 10.0, "class_gate_b": 0.05,
    }  # fmt: skip
    assert differences(options, earlier) == {}


def test_a_mixture_has_15_components_where_nothing_bounds_the_feature() -> None:
    contract = {"feature_shape": (4,), "num_classes": 2, "sigma": 0.1, "mode": "faithful"}
    clusters = {
        bounded: sv.surrogates.create("gmm", sigmoid_output=bounded, **contract).bank.mean.shape[1]  # type: ignore[arg-type,union-attr,index]
        for bounded in (True, False)
    }
    assert clusters == {True: 5, False: 15}


def test_training_defaults_are_those_of_spec_6() -> None:
    expected = {
        "batch_size": 128, "lr": 0.05, "momentum": 0.9, "weight_decay": 5e-4, "privacy_weight": 16.0,
        "schedule": "multistep", "gamma": 0.2, "first_epoch_lr": "base", "lr_min": 0.0, "stop": "epochs",
        "select": "last", "progressive": False, "base_epochs": 5, "adapt_epochs": 5,
    }  # fmt: skip
    assert differences(Train(), expected) == {}
    assert load_config().seed == 125


def test_defences_and_the_attack_have_the_numbers_of_spec_7_and_8() -> None:
    assert NoiseOptions().sigma == 0.025
    assert differences(ScaOptions(), {"threshold": 0.01, "iterations": 1, "decay": 0.05, "atoms": None}) == {}
    attack = {
        "kind": "residual", "blocks": 8, "width": 64, "epochs": 50, "batch_size": 256, "lr": 1e-3, "lr_min": 1e-5,
        "weight_decay": 1e-4, "holdout": 0.1,
    }  # fmt: skip
    assert differences(DecoderOptions(), attack) == {}
