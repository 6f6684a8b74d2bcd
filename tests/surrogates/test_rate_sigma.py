"""`rate_sigma`: the noise that a rate is measured against at least, and who gets it."""

import math

import pytest
import torch

from splitveil import surrogates
from splitveil.core.catalogue import SURROGATES
from splitveil.core.errors import ConfigError

FIVE = ("gmm", "slot_cross", "gated", "slot_gated", "enhanced")
COST = {"gmm": ("form", "gauss_diag"), "slot_cross": ("form", "rate")}  # the others name it `base`
HINGES = ("softplus", "relu")
SHAPE, CLASSES = (8, 2, 2), 3


def options(name, **given):
    return SURROGATES.load(name).resolve(name=name, **given)


def loss(name, sigma, **given):
    """Loss and gradient of features that are spread out: no floor of a variance is in reach."""
    generator = torch.Generator().manual_seed(3)
    torch.manual_seed(5)
    surrogate = surrogates.create(name, feature_shape=SHAPE, num_classes=CLASSES, sigma=sigma, **given).double()
    z = torch.rand(24, *SHAPE, generator=generator, dtype=torch.float64)
    y = torch.arange(24) % CLASSES
    surrogate.refresh([(z, y)])
    z = (z + 0.1 * torch.rand(z.shape, generator=generator, dtype=torch.float64)).requires_grad_()
    value = surrogate(z, y, epoch=2, generator=torch.Generator().manual_seed(7)).loss
    return value.item(), torch.autograd.grad(value, z)[0]


@pytest.mark.parametrize("name", [*FIVE, "rate"])
def test_the_rate_is_that_of_a_run_with_so_much_noise(name):
    own, gradient = loss(name, 0.025, rate_sigma=0.2)
    noisy, reference = loss(name, 0.2, rate_sigma=0)
    assert own == pytest.approx(noisy, rel=1e-9)
    torch.testing.assert_close(gradient, reference, rtol=1e-7, atol=1e-12)
    assert own < 0.9 * loss(name, 0.025, rate_sigma=0)[0]


@pytest.mark.parametrize("name", [*FIVE, "rate"])
def test_more_noise_in_the_run_counts_instead(name):
    assert loss(name, 0.3, rate_sigma=0.1)[0] == loss(name, 0.3, rate_sigma=0)[0]


def test_learned_noise_is_followed_above_it():
    surrogate = surrogates.create("gmm", feature_shape=SHAPE, num_classes=CLASSES, sigma=0.025)
    assert surrogate.cost.sigma == 0.1
    surrogate.set_sigma(0.4)
    assert surrogate.cost.sigma == 0.4
    surrogate.set_sigma(0.05)
    assert surrogate.cost.sigma == 0.1


def whole(name, **given):
    """All that a surrogate gives, of dimensions with variances below and above the thresholds and floors."""
    torch.manual_seed(5)
    surrogate = surrogates.create(name, feature_shape=SHAPE, num_classes=CLASSES, sigma=0.025, **given).double()
    spread = torch.logspace(-2, -0.3, 32, dtype=torch.float64).view(SHAPE)
    z = spread * torch.rand(24, *SHAPE, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    y = torch.arange(24) % CLASSES
    surrogate.refresh([(z, y)])
    return surrogate(z, y, epoch=2, generator=torch.Generator().manual_seed(7))


@pytest.mark.parametrize(
    ("name", "given"),
    [
        *[("gmm", {"form": form}) for form in ("hinge_scalar", "linear", "logdet_hinge")],
        *[("slot_cross", {"form": form}) for form in ("log", "linear")],
        ("slot_cross", {"hinge": True}),
        *[(name, {"base": "threshold", "hinge": hinge}) for name in ("gated", "slot_gated") for hinge in HINGES],
        *[("enhanced", {"base": base}) for base in ("notes", "threshold")],
    ],
)
def test_what_is_no_rate_stays_as_it_was(name, given):
    plain, asked = (whole(name, **given, rate_sigma=level).loss for level in (0, 0.3))
    assert plain != 0
    assert asked == plain


@pytest.mark.parametrize("name", [*FIVE, "rate"])
def test_only_the_cost_of_a_variance_changes(name):
    """Not the fit of the surrogate, nor thresholds, floors and monitors, which belong to the noise of the run."""
    monitored = {"monitor": 1} if name == "gmm" else {}
    plain, asked = (whole(name, **monitored, rate_sigma=level) for level in (0, 0.3))
    assert asked.loss < plain.loss
    assert asked.fit_loss == plain.fit_loss
    changed = {key for key, value in plain.diagnostics.items() if not torch.equal(value, asked.diagnostics[key])}
    assert changed <= {"per_class_loss", "base_mean"}


@pytest.mark.parametrize("name", FIVE)
def test_corrected_has_it_and_whoever_names_the_cost_does_not(name):
    key, value = COST.get(name, ("base", "rate"))
    assert options(name).rate_sigma == 0.1
    assert options(name, mode="faithful").rate_sigma == 0
    assert options(name, **{key: value}).rate_sigma == 0
    assert options(name, **{key: value}, rate_sigma=0.2).rate_sigma == 0.2


@pytest.mark.parametrize("name", FIVE)
@pytest.mark.parametrize("rate_sigma", [0, 0.1])
def test_a_complete_configuration_is_read_back_as_it_was(name, rate_sigma):
    made = options(name, rate_sigma=rate_sigma)
    assert options(**made.model_dump(mode="json")) == made


@pytest.mark.parametrize("name", FIVE)
def test_a_complete_configuration_from_before_it_existed_means_what_it_meant(name):
    written = options(name).model_dump(mode="json")
    del written["rate_sigma"]
    assert options(**written).rate_sigma == 0
    assert options(**written).model_dump(mode="json") == written  # and so has the address that it had


@pytest.mark.parametrize("name", [*FIVE, "rate"])
def test_noise_whose_square_no_float_holds_ends_the_pull(name):
    value, gradient = loss(name, 1e200)
    assert math.isfinite(value)
    assert not gradient.any()


@pytest.mark.parametrize("value", [-0.1, 11])
def test_a_level_that_cannot_be_meant_is_refused(value):
    with pytest.raises(ConfigError, match=r"rate_sigma.*should be (greater|less) than or equal to"):
        options("gated", rate_sigma=value)
