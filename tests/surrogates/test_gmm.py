"""The `gmm` surrogate against its loop oracle, and items S1.1-S1.8 of SPEC 10 (S1.7 is in tests/functional)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.gmm import gmm as oracle

from splitveil import surrogates
from splitveil.core.errors import ConfigError, InputError
from splitveil.functional.gaussian import component_logdet

FORMS = ["hinge_scalar", "linear", "gauss_scalar", "gauss_diag", "gauss_full", "logdet_hinge"]
SIGMA = 0.025


def create(classes=3, dim=4, sigma=SIGMA, **options):
    return surrogates.create("gmm", feature_shape=(dim,), num_classes=classes, sigma=sigma, **options)


def fill(surrogate, *, mean, mass, variance=None, diagonal=None, full=None, fitted=None):
    """Put known statistics into the bank and remake what depends on them."""
    bank = surrogate.bank
    bank.mean.copy_(mean)
    bank.mass.copy_(mass)
    bank.size.copy_(mass.sum())
    bank.fitted.copy_(mass.sum(dim=1) > 0 if fitted is None else fitted)
    if variance is not None:
        bank.variance.copy_(variance)
    if bank.diagonal is not None and diagonal is not None:
        bank.diagonal.copy_(diagonal)
    if bank.basis is not None and full is not None:
        values, vectors = torch.linalg.eigh(full)
        bank.eigen.copy_(values.clamp(min=0))
        bank.basis.copy_(vectors)
    surrogate.load_state_dict(surrogate.state_dict())
    return surrogate


def bank_of(surrogate):
    """The stored statistics in float64, the full covariance put together again."""
    bank = surrogate.bank
    stored = {name: getattr(bank, name) for name in ("mean", "mass", "variance", "fitted")}
    if bank.diagonal is not None:
        stored["diagonal"] = bank.diagonal
    if bank.basis is not None:
        basis = bank.basis.double()
        stored["full"] = basis @ torch.diag_embed(bank.eigen.double()) @ basis.mT
    return {name: value.double().clone() if value.is_floating_point() else value for name, value in stored.items()}


def oracle_of(surrogate, x, y):
    options = surrogate.options
    return oracle(
        x,
        y,
        bank_of(surrogate),
        sigma=surrogate.sigma,
        rate_sigma=options.rate_sigma,
        form=options.form,
        aggregation=options.aggregation,
        kappa=options.kappa,
        rho_max=options.rho_max,
        gradient=options.gradient,
        class_size=options.class_size,
        update_weights=options.update_weights,
        class_weight=options.class_weight,
        stats_index=options.stats_index,
        align=options.align,
        gamma=surrogate.cost.gamma,
        theta=options.var_threshold,
        per_dim=options.per_dim,
    )


@dataclass
class Case:
    x: torch.Tensor
    y: torch.Tensor
    surrogate: torch.nn.Module


@st.composite
def cases(draw, dtype=torch.float64, scales=(-6, 6), offset=True, exact=True, forms=None):
    seed = draw(st.integers(0, 2**31 - 1))
    generator = torch.Generator().manual_seed(seed)
    size = draw(st.integers(1, 200))
    classes = draw(st.integers(1, 100))
    dim, clusters = draw(st.integers(4, 16)), draw(st.integers(1, 5))
    form = draw(st.sampled_from(FORMS if forms is None else forms))
    full = form in ("gauss_full", "logdet_hinge")
    if full and exact:  # a determinant loses digits as variance over floor grows: 1e-9 needs that ratio under 1e6
        scales = (scales[0], min(scales[1], -1 if form == "logdet_hinge" else 0))
    scale = 10.0 ** draw(st.integers(*scales))
    sigma = draw(st.sampled_from([0.025, 0.3] if full and exact else [0.0, 0.025, 0.3]))
    options = {
        "form": form,
        "rate_sigma": draw(st.sampled_from([0.0, 0.1])),
        "aggregation": draw(st.sampled_from(["paper", "released"])),
        "class_weight": draw(st.sampled_from(["share", "equal"])),
        "class_size": draw(st.sampled_from(["counted", "nominal"])),
        "stats_index": draw(st.sampled_from(["class", "sample"])),
        "align": draw(st.sampled_from(["true", "padded"])),
        "update_weights": draw(st.booleans()),
        "per_dim": draw(st.booleans()),
        "kappa": draw(st.sampled_from([1.0, 10.0])),
        "rho_max": draw(st.sampled_from([0.99, 1.0])),
        "var_threshold": draw(st.sampled_from([0.125, 0.0625])),
    }
    surrogate = create(classes, dim, num_clusters=clusters, sigma=sigma, **options)
    surrogate = surrogate.to(dtype)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    y = torch.randint(0, classes, (size,), generator=generator)
    mean = normal(classes, clusters, dim) * scale
    if offset and draw(st.booleans()):
        mean = mean + scale
    if draw(st.booleans()):
        mean[:, -1] = mean[:, 0]  # two equal centroids: the first must win
    mode = torch.randint(0, clusters, (size,), generator=generator)
    spread = draw(st.sampled_from([0.0, 0.1, 1.0])) if offset else 1.0
    x = mean[y, mode] + spread * scale * normal(size, dim)
    if spread == 0.0:
        x = torch.full_like(x, scale)  # constant features
    mass = torch.randint(0, 60, (classes, clusters), generator=generator).double()
    mass = torch.where(mass < 12, (mass // 4).floor(), mass)  # empty clusters and clusters of one member
    fitted = mass.sum(dim=1) > 0
    root = normal(classes, clusters, dim, dim) * scale * 0.3
    full = root @ root.mT / dim
    diagonal = full.diagonal(dim1=-2, dim2=-1)
    fill(
        surrogate,
        mean=mean,
        mass=mass,
        variance=diagonal.mean(dim=-1),
        diagonal=diagonal,
        full=full,
        fitted=fitted,
    )
    return Case(x.to(dtype), y, surrogate)


def compare(case, tolerance, *, absolute):
    surrogate = case.surrogate
    x = case.x.clone().requires_grad_()
    exact = case.x.double().requires_grad_()
    if not bool(surrogate.bank.fitted.any()):
        with pytest.warns(RuntimeWarning, match="no bank"):
            out = surrogate(x, case.y)
        assert out.loss == 0
        return
    expected, per_class, intra = oracle_of(surrogate, exact, case.y)
    out = surrogate(x, case.y)
    assert out.loss.item() == pytest.approx(expected.item(), rel=tolerance, abs=absolute)
    allowed = max(absolute, tolerance * abs(expected.item()))
    assert torch.allclose(out.per_class.double(), per_class, rtol=tolerance, atol=allowed)
    assert out.intra_mse.item() == pytest.approx(intra, rel=tolerance)
    (gradient,) = torch.autograd.grad(out.loss, x)
    if expected.requires_grad:
        (reference,) = torch.autograd.grad(expected, exact)
        largest = float(reference.abs().max())
        assert torch.allclose(gradient.double(), reference, rtol=tolerance, atol=tolerance * largest)
    else:
        assert torch.equal(gradient, torch.zeros_like(gradient))


@settings(max_examples=120, deadline=None)
@given(case=cases())
def test_float64_agrees_with_the_loop_oracle(case):
    compare(case, 1e-9, absolute=1e-13)  # a determinant near 1 is only known to rounding of 1


@settings(max_examples=80, deadline=None)
@given(case=cases(dtype=torch.float32, scales=(-2, 2), offset=False))
def test_float32_agrees_with_the_loop_oracle(case):
    # differences of logarithms have an absolute error of a few float32 roundings of their size
    hinge = "hinge" in case.surrogate.options.form
    compare(case, 1e-5, absolute=1e-5 if hinge else 1e-7)


@settings(max_examples=40, deadline=None)
@given(case=cases(dtype=torch.float32, exact=False))
def test_float32_stays_finite_at_every_scale(case):
    if not bool(case.surrogate.bank.fitted.any()):
        return
    x = case.x.requires_grad_()
    out = case.surrogate(x, case.y)
    out.loss.backward()
    assert torch.isfinite(out.loss)
    assert torch.isfinite(x.grad).all()
    assert out.per_class.sum().item() == pytest.approx(out.loss.item(), rel=1e-5, abs=1e-6)


# ---------------------------------------------------------------------------------------------- items of SPEC 10


def one_class(form, *, v, dim=4, sigma=SIGMA, **options):
    """One component with stored covariance v·I and a batch of 2·D samples with exactly that covariance."""
    surrogate = create(1, dim, sigma=sigma, num_clusters=1, form=form, mode="corrected", **options).double()
    eye = torch.eye(dim, dtype=torch.float64)
    fill(
        surrogate,
        mean=torch.ones(1, 1, dim),
        mass=torch.full((1, 1), 100.0),
        variance=torch.full((1, 1), v, dtype=torch.float64),
        diagonal=torch.full((1, 1, dim), v, dtype=torch.float64),
        full=(v * eye).expand(1, 1, dim, dim),
    )
    x = 1.0 + torch.cat([eye, -eye]) * math.sqrt(v * dim)
    return surrogate, x, torch.zeros(2 * dim, dtype=torch.long)


@pytest.mark.parametrize("form", ["gauss_scalar", "gauss_diag", "gauss_full"])
def test_s1_1_gaussian_forms_give_half_log_two_at_the_noise_power(form):
    surrogate, x, y = one_class(form, v=SIGMA**2)
    assert surrogate(x, y).loss.item() == pytest.approx(0.5 * math.log(2), rel=1e-9)
    assert round(0.5 * math.log(2), 6) == 0.346574


def test_s1_2_released_numbers():
    surrogate = create(10, 4, preset="gmm.released", num_clusters=1)
    fill(
        surrogate,
        mean=torch.zeros(10, 1, 4),
        mass=torch.full((10, 1), 391 * 128 / 10),
        variance=torch.full((10, 1), 0.04),
    )
    x, y = torch.full((1, 4), 0.3), torch.tensor([7])
    out = surrogate(x, y)
    rho = 10 / 5004.8
    assert rho == pytest.approx(0.0019981, abs=5e-8)
    assert out.diagnostics["var_mean"].item() == pytest.approx(0.0400999, rel=1e-5)
    assert out.loss.item() == pytest.approx(1.603652, rel=1e-6)


def test_s1_2_holds_for_a_bank_fitted_by_refresh():
    """The same number from 391 batches of features, with labels that are not exactly balanced (N_c is nominal)."""
    surrogate = create(10, 4, preset="gmm.released", num_clusters=1)
    y = torch.arange(391 * 128) % 10
    sign = torch.where(torch.arange(len(y)) // 10 % 2 == 0, 1.0, -1.0)[:, None]
    z = sign * torch.full((1, 4), 0.2)
    surrogate.refresh((z[i : i + 128], y[i : i + 128]) for i in range(0, len(y), 128))
    assert torch.allclose(surrogate.bank.variance, torch.tensor(0.04), rtol=1e-4)
    out = surrogate(surrogate.bank.mean[3] + 0.3, torch.tensor([3]))
    assert out.loss.item() == pytest.approx(1.603652, rel=1e-4)


@pytest.mark.parametrize("index", ["sample", "class"])
def test_s1_3_the_released_index_reads_only_the_lowest_class(index):
    generator = torch.Generator().manual_seed(0)
    y = torch.cat([torch.full((6,), 1), torch.arange(2, 6), torch.arange(2, 6)])  # M_1 = 6 >= the 5 present classes
    x = torch.randn(14, 4, generator=generator)
    surrogate = create(6, 4, preset="gmm.released", stats_index=index, align="true", num_clusters=2)
    mean = torch.randn(6, 2, 4, generator=generator)
    mass, variance = torch.full((6, 2), 50.0), torch.rand(6, 2, generator=generator) + 0.1
    before = fill(surrogate, mean=mean, mass=mass, variance=variance)(x, y).loss.item()
    variance[2:] *= 7
    mass[2:, 0] += 20  # other weights and sizes; the total stays
    mass[2:, 1] -= 20
    after = fill(surrogate, mean=mean, mass=mass, variance=variance)(x, y).loss.item()
    assert before > 0
    assert (after == before) is (index == "sample")


def test_s1_3_padded_lists_shift_after_an_empty_cluster():
    """Clusters (10, 0, 5) of variances (1, -, 3): places 0, 1, 2 read weights (2/3, 1/3, .01), variances (1, 3, 3)."""
    surrogate = create(1, 4, preset="gmm.released", num_clusters=3, form="linear", kappa=1e-9)
    mean = torch.tensor([0.0, 10.0, 20.0]).reshape(1, 3, 1).expand(1, 3, 4)
    fill(surrogate, mean=mean, mass=torch.tensor([[10.0, 0.0, 5.0]]), variance=torch.tensor([[1.0, 2.0, 3.0]]))
    expected = {0.0: 2 / 3 * 1.001, 10.0: 1 / 3 * 3.001, 20.0: 0.01 * 3.001}
    for position, value in expected.items():
        assert surrogate(torch.full((1, 4), position), torch.tensor([0])).loss.item() == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize("rho", [0.0, 0.3, 1.0])
def test_s1_4_low_rank_logdet_equals_the_dense_one(rho):
    generator = torch.Generator().manual_seed(1)
    dim, members = 7, [0, 2, 3]  # sample 1 belongs to another component
    root = torch.randn(2, dim, dim, generator=generator, dtype=torch.float64)
    stored = root @ root.mT / dim
    values, vectors = torch.linalg.eigh(stored)
    diff = torch.randn(4, dim, generator=generator, dtype=torch.float64, requires_grad=True)
    own = torch.tensor([0, 1, 0, 0])
    same = (own[:, None] == own[None]).double()
    result, failed = component_logdet(
        diff, vectors[own], values[own], torch.full((4,), rho, dtype=torch.float64), same.sum(dim=1), same, 0.01
    )
    dense = (
        rho * diff[members].T @ diff[members] / 3 + (1 - rho) * stored[0] + 0.01 * torch.eye(dim, dtype=torch.float64)
    )
    expected = torch.linalg.slogdet(dense)[1] - dim * math.log(0.01)
    assert not failed
    assert torch.allclose(result[members], expected.expand(3), rtol=1e-8)
    (gradient,) = torch.autograd.grad(result[2], diff)
    (reference,) = torch.autograd.grad(expected, diff)
    assert torch.allclose(gradient, reference, rtol=1e-8, atol=1e-12)


def test_s1_5_equation_5_keeps_the_weights_normalised():
    surrogate, batches = fitted(preset="gmm.diag", persist="on")
    assert surrogate.bank.mass.sum().item() == pytest.approx(surrogate.bank.size.item())
    before = surrogate.bank.mass.clone()
    for z, y in batches:
        surrogate(z, y)
        assert surrogate.bank.mass.sum().item() == pytest.approx(surrogate.bank.size.item(), rel=1e-9)
    assert not torch.equal(before, surrogate.bank.mass)


@pytest.mark.parametrize(("form", "persist"), [("gauss_scalar", "on"), ("gauss_diag", "on"), ("gauss_full", "full")])
def test_s1_5_equation_6_with_rho_one_returns_the_batch_covariance(form, persist):
    surrogate, batches = fitted(preset="gmm.diag", form=form, persist=persist, kappa=1e9, num_clusters=1)
    z, y = batches[0]
    mean = surrogate.bank.mean.clone()
    surrogate(z, y)
    for c in y.unique().tolist():
        diff = z[y == c] - mean[c, 0]
        covariance = diff.T @ diff / len(diff)
        assert surrogate.bank.variance[c, 0].item() == pytest.approx(covariance.trace().item() / 4, rel=1e-9)
        if form != "gauss_scalar":
            assert torch.allclose(surrogate.bank.diagonal[c, 0], covariance.diagonal(), rtol=1e-9)
        if form == "gauss_full":
            assert torch.allclose(bank_of(surrogate)["full"][c, 0], covariance, rtol=1e-8, atol=1e-10)


def test_s1_6_hinge_is_zero_with_zero_gradient_under_the_threshold():
    theta, small = 0.125, math.sqrt(0.125 * SIGMA**2)
    for factor, zero in ((0.99, True), (1.5, False)):
        surrogate = create(2, 4, preset="gmm.intended", num_clusters=1, var_threshold=theta, rho_max=1.0, kappa=1e9)
        fill(surrogate, mean=torch.zeros(2, 1, 4), mass=torch.full((2, 1), 9.0), variance=torch.zeros(2, 1))
        x = torch.full((3, 4), factor * small, requires_grad=True)
        loss = surrogate(x, torch.tensor([0, 1, 1])).loss
        loss.backward()
        assert (loss.item() == 0) is zero
        assert (x.grad.abs().max().item() == 0) is zero


@pytest.mark.parametrize("form", ["gauss_scalar", "gauss_diag", "gauss_full"])
@pytest.mark.parametrize("aggregation", ["paper", "released"])
def test_s1_8_shrinking_everything_strictly_lowers_the_gaussian_forms(form, aggregation):
    surrogate, batches = fitted(preset="gmm.diag", form=form, aggregation=aggregation)
    z, y = batches[0]
    stored = {name: value.clone() for name, value in surrogate.bank.state_dict().items()}
    losses = []
    for kappa in (1.0, 0.9, 0.5, 0.1):
        for name, power in (("mean", 1), ("variance", 2), ("diagonal", 2), ("eigen", 2)):
            if getattr(surrogate.bank, name) is not None:
                getattr(surrogate.bank, name).copy_(stored[name] * kappa**power)
        surrogate.load_state_dict(surrogate.state_dict())
        losses.append(surrogate(z * kappa, y).loss.item())
    assert all(after < before for before, after in pairwise(losses))


# ------------------------------------------------------------------------------------------------- epoch statistics


def fitted(classes=3, dim=4, dtype=torch.float64, batches=5, size=24, seed=0, **options):
    """A surrogate after one refresh, and the batches it has seen."""
    generator = torch.Generator().manual_seed(seed)
    surrogate = create(classes, dim, **options)
    center = torch.randn(classes, dim, generator=generator, dtype=dtype) * 2
    data = []
    for _ in range(batches):
        y = torch.randint(0, classes, (size,), generator=generator)
        data.append((center[y] + 0.3 * torch.randn(size, dim, generator=generator, dtype=dtype), y))
    surrogate.refresh(data)
    return surrogate, data


def test_refresh_keeps_float32_inside_autocast():
    """SPEC 0.4: K-means and variances in float32, whatever the training runs in."""
    with torch.autocast("cpu", torch.bfloat16):
        surrogate, batches = fitted(dtype=torch.float32, num_clusters=1)
    x, y = torch.cat([z for z, _ in batches]), torch.cat([y for _, y in batches])
    for c in range(3):
        rows = x[y == c]
        assert torch.allclose(surrogate.bank.mean[c, 0], rows.mean(dim=0), rtol=1e-5)
        assert torch.allclose(surrogate.bank.diagonal[c, 0], rows.var(dim=0, correction=0), rtol=1e-4)


def test_refresh_stores_means_weights_and_variances_of_the_classes():
    surrogate, batches = fitted(preset="gmm.paper", num_clusters=1)
    x, y = torch.cat([z for z, _ in batches]), torch.cat([y for _, y in batches])
    bank = surrogate.bank
    assert bank.size.item() == len(y)
    for c in range(3):
        rows = x[y == c]
        covariance = torch.cov(rows.T, correction=0)
        assert torch.allclose(bank.mean[c, 0], rows.mean(dim=0))
        assert bank.mass[c, 0].item() == len(rows)
        assert bank.variance[c, 0].item() == pytest.approx(covariance.trace().item() / 4)
        assert torch.allclose(bank.diagonal[c, 0], covariance.diagonal())
        assert torch.allclose(bank_of(surrogate)["full"][c, 0], covariance, atol=1e-12)


@pytest.mark.parametrize("preset", ["gmm.released", "gmm.intended", "gmm.paper", "gmm.diag"])
def test_presets_agree_with_the_oracle_after_a_real_refresh(preset):
    surrogate, batches = fitted(preset=preset, classes=4, size=30)
    surrogate.eval()  # gmm.paper persists in train mode
    x = batches[1][0].clone().requires_grad_()
    out = surrogate(x, batches[1][1])
    exact = batches[1][0].clone().requires_grad_()
    expected, _, _ = oracle_of(surrogate, exact, batches[1][1])
    assert out.loss.item() == pytest.approx(expected.item(), rel=1e-9)
    assert out.loss.item() != 0
    gradient, reference = torch.autograd.grad(out.loss, x)[0], torch.autograd.grad(expected, exact)[0]
    assert reference.abs().max() > 0
    assert torch.allclose(gradient, reference, rtol=1e-9, atol=1e-9 * reference.abs().max().item())


def test_presets_have_the_settings_of_the_table():
    def settings_of(**given):
        options = create(**given).options
        names = ("clusters", "stats_index", "align", "kappa", "rho_max", "form", "aggregation", "persist")
        return tuple(getattr(options, name) for name in names)

    released = (5, "sample", "padded", 10.0, 0.99, "hinge_scalar", "released", "off")
    assert settings_of(preset="gmm.released") == released
    assert settings_of(mode="faithful") == released
    assert settings_of(mode="faithful", sigmoid_output=False)[0] == 15
    assert settings_of(preset="gmm.intended") == (5, "class", "true", *released[3:])
    assert settings_of(preset="gmm.paper") == (3, "class", "true", 1.0, 1.0, "gauss_full", "paper", "on")
    assert settings_of(preset="gmm.diag") == (3, "class", "true", 1.0, 1.0, "gauss_diag", "paper", "off")
    assert settings_of() == settings_of(preset="gmm.diag")
    assert create().options.class_weight == "equal"
    for preset in ("gmm.paper", "gmm.diag"):  # SPEC 1.2: all features, 50 Lloyd steps; SPEC 1.3: the gradient of eq. 6
        options = create(preset=preset).options
        assert (options.class_weight, options.gradient) == ("share", "eq6")
        assert (options.bank_samples, options.max_steps) == (0, 50)
    assert create(align=True).options.align == "true"


@pytest.mark.parametrize("preset", ["gmm.released", "gmm.intended", "gmm.paper", "gmm.diag"])
@pytest.mark.parametrize("mode", ["faithful", "corrected"])
def test_a_preset_is_the_same_whatever_mode_stands_beside_it(preset, mode):
    """Reports call a run by its preset, so a recipe's mode must not change what the name stands for (DESIGN 2)."""
    assert create(preset=preset, mode=mode).options == create(preset=preset).options
    assert create(preset=preset, mode=mode, kappa=3.0).options.kappa == 3.0
    with pytest.raises(ConfigError, match="mode"):
        create(preset=preset, mode="faithfull")


def test_the_paper_aggregation_counts_frequency_in_faithful_mode_too():
    """SPEC 1.4: L = Σ_j π_j·(−log π_j + form_j) with the global π; a mode or preset that says otherwise still wins."""
    z = torch.randn(40, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = (torch.arange(40) >= 30).long()  # 30 and 10 samples
    options = {"mode": "faithful", "aggregation": "paper", "form": "gauss_scalar", "num_clusters": 1}
    s = create(classes=2, dim=4, sigma=0.5, stats_index="class", **options)
    s.refresh([(z, y)])
    expected = 0.0
    for c, share in ((0, 0.75), (1, 0.25)):
        x = z[y == c]
        variance = (x - x.mean(dim=0)).square().mean().item()
        expected += share * (-math.log(share) + 0.5 * math.log1p(variance / 0.25))
    assert s(z, y).loss.item() == pytest.approx(expected, rel=1e-9)
    assert create(**options, class_weight="equal").options.class_weight == "equal"
    assert create(preset="gmm.intended").options.class_weight == "equal"


@pytest.mark.parametrize("count", [1, 2])
def test_a_second_refresh_starts_from_the_old_means_and_spares_small_classes(count):
    surrogate, batches = fitted(num_clusters=2)
    old = {name: value.clone() for name, value in surrogate.bank.state_dict().items()}
    z, y = batches[0][0] + 1, batches[0][1].clone()
    y[y == 2] = 1
    y[:count] = 2  # samples of class 2: not more than K
    surrogate.refresh([(z, y)])
    for name in ("mean", "mass", "variance", "diagonal"):
        assert torch.equal(getattr(surrogate.bank, name)[2], old[name][2])
        assert not torch.equal(getattr(surrogate.bank, name)[0], old[name][0])
    again = surrogate.bank.mean.clone()
    surrogate.refresh([(z, y)])
    assert torch.allclose(surrogate.bank.mean, again)  # a fixed point of Lloyd's steps


def test_an_empty_cluster_keeps_its_centroid_and_its_variance():
    surrogate = create(1, 2, num_clusters=2)
    pair = torch.tensor([[0.0, 0.0], [0.0, 2.0]])
    far = pair + torch.tensor([100.0, 0.0])
    surrogate.refresh([(torch.cat([pair, far]), torch.zeros(4, dtype=torch.long))])
    left = int(surrogate.bank.mean[0, :, 0].argmin())
    surrogate.refresh([(torch.cat([far, far]), torch.zeros(4, dtype=torch.long))])  # nobody is near the first pair
    assert surrogate.bank.mass[0, left] == 0
    assert torch.equal(surrogate.bank.mean[0, left], torch.tensor([0.0, 1.0]))
    assert torch.equal(surrogate.bank.diagonal[0, left], torch.tensor([0.0, 1.0]))
    assert surrogate.bank.variance[0, left] == 0.5


def test_a_class_first_seen_later_is_fitted_then():
    surrogate = create(2, 4, num_clusters=2)
    z = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    surrogate.refresh([(z, torch.zeros(20, dtype=torch.long))])
    assert surrogate.bank.fitted.tolist() == [True, False]
    y = (torch.arange(20) >= 19).long()
    surrogate.refresh([(z, y)])
    assert surrogate.bank.fitted.tolist() == [True, True]
    assert torch.allclose(surrogate.bank.mean[1], z[19:].expand(2, 4))
    assert surrogate.bank.mass[1].tolist() == [1, 0]


def test_streaming_needs_no_second_pass_and_follows_a_drift():
    surrogate, batches = fitted(persist="on", refit="never", num_clusters=1, classes=2, batches=8)

    def untouched():
        raise AssertionError("refresh must not look at the data again")
        yield

    surrogate.refresh(untouched())
    start = surrogate.bank.mean.clone()
    for _ in range(30):
        for z, y in batches:
            surrogate(2 * z + 1, y)
    x, y = torch.cat([2 * z + 1 for z, _ in batches]), torch.cat([y for _, y in batches])
    for c in range(2):
        target = x[y == c].mean(dim=0)
        assert (surrogate.bank.mean[c, 0] - target).norm() < 0.1 * (start[c, 0] - target).norm()
        spread = x[y == c].var(dim=0, correction=0)
        assert torch.allclose(surrogate.bank.diagonal[c, 0], spread, rtol=0.35)


@pytest.mark.parametrize("form", ["gauss_scalar", "gauss_diag", "gauss_full"])
def test_one_streaming_step_is_the_mixture_of_past_and_batch(form):
    """Moments of the law that is the past with probability 1−ρ and the batch with probability ρ, around its mean."""
    persist = "full" if form == "gauss_full" else "on"
    surrogate, batches = fitted(persist=persist, refit="never", num_clusters=1, form=form)
    old = bank_of(surrogate)
    z, y = batches[0][0] * 1.3 + 0.2, batches[0][1]
    surrogate(z, y)
    new = bank_of(surrogate)
    for c in range(3):
        rows = z[y == c]
        rho = len(rows) / old["mass"][c, 0]
        mean = rho * rows.mean(dim=0) + (1 - rho) * old["mean"][c, 0]
        assert torch.allclose(new["mean"][c, 0], mean, rtol=1e-9)
        square = rho * (rows - mean).square().mean(dim=0)
        shift = (old["mean"][c, 0] - mean).square()
        if form == "gauss_scalar":
            variance = square.mean() + (1 - rho) * (old["variance"][c, 0] + shift.mean())
            assert torch.allclose(new["variance"][c, 0], variance, rtol=1e-9)
            continue
        diagonal = square + (1 - rho) * (old["diagonal"][c, 0] + shift)
        assert torch.allclose(new["diagonal"][c, 0], diagonal, rtol=1e-9)
        if form == "gauss_full":
            assert torch.allclose(new["full"][c, 0].diagonal(), diagonal, rtol=1e-8)


@pytest.mark.parametrize("persist", ["on", "full"])
def test_streaming_writes_nothing_in_eval_mode_or_for_bad_batches(persist):
    surrogate, batches = fitted(preset="gmm.paper", persist=persist)
    z, y = batches[0]
    before = {name: value.clone() for name, value in surrogate.state_dict().items()}
    bad = z.clone()
    bad[3, 1] = torch.nan
    surrogate(bad, y)
    surrogate.eval()
    surrogate(z, y)
    assert all(torch.equal(value, before[name]) for name, value in surrogate.state_dict().items())
    surrogate.train()
    surrogate(z, y)
    assert not all(torch.equal(value, before[name]) for name, value in surrogate.state_dict().items())


def test_a_class_too_large_to_square_leaves_no_trace_and_the_others_do():
    surrogate, batches = fitted(persist="on", dtype=torch.float32)
    z, y = batches[0][0].clone(), batches[0][1]
    z[y == 1] = 1e30
    before = surrogate.bank.diagonal.clone()
    out = surrogate(z, y)
    assert out.diagnostics["classes_nonfinite"] == 1
    assert out.loss > 0
    assert torch.equal(surrogate.bank.diagonal[1], before[1])
    assert not torch.equal(surrogate.bank.diagonal[0], before[0])


def test_the_cost_of_absent_components_follows_the_stored_statistics():
    surrogate, batches = fitted(persist="on", classes=2)
    for z, y in batches:
        surrogate(z * 1.5, y)
    x, y = batches[0][0][:2], torch.zeros(2, dtype=torch.long)
    surrogate.eval()
    expected, _, _ = oracle_of(surrogate, x, y)
    assert surrogate(x, y).loss.item() == pytest.approx(expected.item(), rel=1e-9)


def test_em_fits_the_bank():
    surrogate, batches = fitted(fit="em", num_clusters=2, em_steps=5)
    bank = surrogate.bank
    assert torch.allclose(bank.mass.sum(), bank.size)
    assert (bank.diagonal[bank.mass > 0] >= 1e-6).all()
    plain, _ = fitted(fit="kmeans", num_clusters=2)
    assert not torch.allclose(bank.mean, plain.bank.mean)
    assert surrogate(*batches[0]).loss.item() != 0


def test_the_monitor_is_the_mean_log_determinant_and_can_be_switched_off():
    surrogate, batches = fitted(preset="gmm.intended", num_clusters=1, monitor=1)
    x, y = torch.cat([z for z, _ in batches]), torch.cat([y for _, y in batches])
    noise = SIGMA**2 * torch.eye(4, dtype=torch.float64)
    expected = sum(torch.linalg.slogdet(torch.cov(x[y == c].T) + noise)[1].item() / 4 for c in range(3)) / 3
    out = surrogate(*batches[0])
    assert out.diagnostics["mutual_information"].item() == pytest.approx(expected, rel=1e-9)
    quiet, _ = fitted(preset="gmm.intended", monitor=0)
    assert "mutual_information" not in quiet(*batches[0]).diagnostics
    tenth, _ = fitted(preset="gmm.intended")
    assert tenth.mutual_information == 0
    for _ in range(9):
        tenth.refresh(batches)
    assert tenth.mutual_information != 0


def test_the_monitor_is_a_mean_over_the_classes_that_are_fitted():
    batch = (torch.randn(40, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 2)
    found = []
    for classes in (2, 5):  # three classes of which nobody has a sample have no log-determinant
        surrogate = create(classes, preset="gmm.intended", num_clusters=1, monitor=1)
        surrogate.refresh([batch])
        found.append(surrogate.mutual_information.item())
    assert found[1] == pytest.approx(found[0], rel=1e-12)
    assert found[0] != 0


@pytest.mark.parametrize("form", ["gauss_full", "logdet_hinge"])
def test_a_failed_factorisation_falls_back_to_the_diagonal(form, monkeypatch):
    """SPEC 1.4: Σ_d log(diag + 1e-5) in place of the log-determinant, diag = that of Σ_j + σ²I (or γI)."""
    surrogate, batches = fitted(preset="gmm.paper", num_clusters=1, form=form, persist="off", sigma=0.003)
    stored, total = bank_of(surrogate), 120.0
    z, y = batches[0]

    def failing(diff, *_):
        return torch.zeros(len(diff), dtype=torch.float64), torch.tensor(True)

    monkeypatch.setattr("splitveil.surrogates.gmm.component_logdet", failing)
    found = surrogate.eval()(z, y).loss.item()
    floor = 0.003**2 if form == "gauss_full" else 1e-6
    expected = 0.0
    for c in range(3):
        mine = z[y == c]
        rho = len(mine) / float(stored["mass"][c, 0])
        around = sum((v - stored["mean"][c, 0]) ** 2 for v in mine) / len(mine)
        variance = rho * around + (1 - rho) * stored["diagonal"][c, 0]
        logdet = sum(math.log(v + floor + 1e-5) for v in variance.tolist())
        cost = (logdet - 4 * math.log(floor)) / 8
        if form == "logdet_hinge":
            cost = max(0.0, logdet / 4 - math.log(0.125 * 0.003**2 + 1e-6))
        weight = (float(stored["mass"][c, 0]) * (1 - len(y) / total) + len(mine)) / total
        expected += weight * (cost - math.log(weight))
    assert found == pytest.approx(expected, rel=1e-9)


# ------------------------------------------------------------------------------------------------------- edge cases


def test_without_a_bank_the_loss_is_a_connected_zero_and_one_warning():
    surrogate = create()
    z = torch.randn(5, 4, requires_grad=True)
    with pytest.warns(RuntimeWarning, match="no bank"):
        out = surrogate(z, torch.tensor([0, 1, 2, 0, 1]))
    assert out.loss == 0
    assert out.diagnostics["no_bank"] == 1
    out.loss.backward()
    assert torch.equal(z.grad, torch.zeros_like(z))
    surrogate(z, torch.tensor([0, 1, 2, 0, 1]))  # a second warning would be an error here


@pytest.mark.parametrize("preset", ["gmm.released", "gmm.paper", "gmm.diag"])
def test_state_survives_a_checkpoint(preset):
    surrogate, batches = fitted(preset=preset, dtype=torch.float32)
    other = create(preset=preset)
    other.load_state_dict(surrogate.state_dict())
    for model in (surrogate, other):
        model.eval()
    assert torch.equal(other(*batches[0]).loss, surrogate(*batches[0]).loss)
    assert other(*batches[0]).diagnostics["no_bank"] == 0


@pytest.mark.parametrize("preset", ["gmm.released", "gmm.intended", "gmm.paper", "gmm.diag"])
def test_bfloat16_features_stay_within_two_percent(preset):
    surrogate, batches = fitted(preset=preset, dtype=torch.float32)
    surrogate.eval()
    z, y = batches[0]
    low = z.bfloat16().requires_grad_()
    out = surrogate(low, y)
    assert out.loss.dtype is torch.float32
    assert out.loss.item() == pytest.approx(surrogate(z, y).loss.item(), rel=0.02)
    out.loss.backward()
    assert low.grad.dtype is torch.bfloat16
    with torch.autocast("cpu", torch.bfloat16):
        mixed = surrogate(z, y).loss
    assert torch.equal(mixed, surrogate(z, y).loss)  # statistics do not take part in autocast


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's own, while tracing
@pytest.mark.parametrize("preset", ["gmm.released", "gmm.paper", "gmm.diag"])
def test_forward_compiles_as_one_graph(preset):
    surrogate, batches = fitted(preset=preset, dtype=torch.float32)
    surrogate.eval()
    z, y = batches[0]
    compiled = torch.compile(surrogate, fullgraph=True, backend="aot_eager")
    assert compiled(z, y).loss.item() == pytest.approx(surrogate(z, y).loss.item(), rel=1e-5)


def test_absent_classes_add_a_constant_under_the_paper_aggregation():
    surrogate, batches = fitted(preset="gmm.diag")
    z, y = batches[0][0][:2].requires_grad_(), torch.zeros(2, dtype=torch.long)
    out = surrogate(z, y)
    assert (out.per_class[1:] != 0).all()
    assert out.per_class.sum().item() == pytest.approx(out.loss.item())
    assert out.diagnostics["class_used"].tolist() == [True, False, False]
    assert out.diagnostics["per_class_loss"][1:].tolist() == [0, 0]


def test_refresh_refuses_foreign_shapes_and_skips_bad_samples():
    surrogate, batches = fitted()
    before = surrogate.bank.mean.clone()
    with pytest.raises(InputError):
        surrogate.refresh([batches[0], (torch.zeros(3, 5), torch.zeros(3, dtype=torch.long))])
    with pytest.warns(RuntimeWarning, match="no usable"):
        surrogate.refresh([])
    assert torch.equal(before, surrogate.bank.mean)
    z = batches[0][0].clone()
    z[0, 0] = torch.inf
    with pytest.warns(RuntimeWarning, match="1 of 24"):
        surrogate.refresh([(z, batches[0][1])])
    assert torch.isfinite(surrogate.bank.mean).all()


def test_options_that_contradict_each_other_are_refused():
    with pytest.raises(ConfigError, match="refit"):
        create(refit="never")
    with pytest.raises(ConfigError, match="full"):
        create(persist="full")
    with pytest.raises(ConfigError, match="GiB"):
        create(100, 8192, preset="gmm.paper")


def test_batch_gradient_is_that_of_equation_6_without_its_share():
    """One component, so rho is one number: same value, gradient larger by 1/rho."""
    settings = {"num_clusters": 1, "classes": 1}
    plain, batches = fitted(preset="gmm.diag", **settings)
    scaled, _ = fitted(preset="gmm.diag", gradient="batch", **settings)
    z, y = batches[0]
    results = []
    for surrogate in (plain, scaled):
        x = z.clone().requires_grad_()
        out = surrogate(x, y)
        results.append((out.loss.item(), torch.autograd.grad(out.loss, x)[0]))
    rho = len(y) / float(plain.bank.size)
    assert 0 < rho < 0.6
    assert results[0][0] == pytest.approx(results[1][0], rel=1e-12)
    assert torch.allclose(results[1][1], results[0][1] / rho, rtol=1e-9)
    assert results[0][1].abs().max() > 0
