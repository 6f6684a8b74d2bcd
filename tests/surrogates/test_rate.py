"""The `rate` surrogate against its loop oracle and against what it bounds."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.rate import rate as oracle

from splitveil import surrogates


def create(classes, dim, sigma=0.025, **options):
    return surrogates.create("rate", feature_shape=(dim,), num_classes=classes, sigma=sigma, **options)


@st.composite
def batches(draw, scales=(-6, 0), spreads=(0.0, 0.05, 1.0)):
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31 - 1)))
    size, classes, dim = draw(st.integers(1, 200)), draw(st.integers(1, 100)), draw(st.integers(4, 16))
    scale, spread = 10.0 ** draw(st.integers(*scales)), draw(st.sampled_from(spreads))
    y = torch.randint(0, classes, (size,), generator=generator)
    center = torch.randn(classes, dim, generator=generator, dtype=torch.float64)
    x = center[y] + spread * torch.randn(size, dim, generator=generator, dtype=torch.float64)
    options = {
        "unbiased": draw(st.booleans()),
        "class_weight": draw(st.sampled_from(["share", "equal"])),
        "memory": draw(st.sampled_from([0, 8])),
        "rate_sigma": draw(st.sampled_from([0.0, 0.1])),
    }
    return x.double() * scale, y, create(classes, dim, **options)


def expected_of(surrogate, x, y):
    return oracle(
        x,
        y,
        sigma=max(surrogate.sigma, surrogate.options.rate_sigma),
        unbiased=surrogate.options.unbiased,
        class_weight=surrogate.options.class_weight,
        past_mean=surrogate.past_mean,
        past_count=surrogate.past_count,
    )


def compare(surrogate, x, y, exact, tolerance, absolute):
    expected = expected_of(surrogate, exact, y)
    out = surrogate(x, y)
    assert out.loss.item() == pytest.approx(expected.item(), rel=tolerance, abs=absolute)
    assert out.per_class.sum().item() == pytest.approx(out.loss.item(), rel=max(tolerance, 1e-6))
    (gradient,) = torch.autograd.grad(out.loss, x)
    if expected.requires_grad:
        (reference,) = torch.autograd.grad(expected, exact)
        largest = reference.abs().max().item()
        # where all samples of a class are equal the true gradient is 0: what is left is the rounding of x − mean
        rounding = 1e-15 * exact.abs().max().item() / surrogate.sigma**2
        assert torch.allclose(gradient.double(), reference, rtol=tolerance, atol=tolerance * largest + rounding)


@settings(max_examples=100, deadline=None)
@given(case=batches(), warm=st.booleans())
def test_float64_agrees_with_the_loop_oracle(case, warm):
    x, y, surrogate = case
    surrogate = surrogate.double()
    if warm:
        surrogate(x.flip(0) * 1.1, y)  # fills the memory where there is one
    compare(surrogate, x.clone().requires_grad_(), y, x.clone().requires_grad_(), 1e-9, 1e-13)


def test_a_float32_surrogate_takes_float64_features_and_remembers_them():
    x, y = torch.randn(12, 6, dtype=torch.float64), torch.arange(12) % 3
    surrogate = create(3, 6, mode="corrected")
    assert torch.isfinite(surrogate(x, y).loss)
    means = torch.stack([x[y == c].mean(0) for c in range(3)])
    torch.testing.assert_close(surrogate.past_mean, means.float())


@settings(max_examples=60, deadline=None)
@given(case=batches(scales=(-1, 1), spreads=(1.0,)))
def test_float32_agrees_with_the_loop_oracle(case):
    x, y, surrogate = case
    x = x.float()
    compare(surrogate, x.clone().requires_grad_(), y, x.double().requires_grad_(), 1e-5, 1e-7)


@settings(max_examples=40, deadline=None)
@given(case=batches(scales=(-6, 6)))
def test_float32_stays_finite_at_every_scale(case):
    x, y, surrogate = case
    x = x.float().requires_grad_()
    out = surrogate(x, y)
    out.loss.backward()
    assert torch.isfinite(out.loss)
    assert out.loss >= 0
    assert torch.isfinite(x.grad).all()


def test_both_gram_matrices_give_the_same_loss():
    """B < D uses the B×B matrix, B > D the D×D one: padding features with zeros moves from one to the other."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(12, 6, generator=generator, dtype=torch.float64), torch.arange(12) % 3
    wide = torch.cat([x, torch.zeros(12, 30, dtype=torch.float64)], dim=1)
    narrow_loss = create(3, 6, mode="faithful")(x, y).loss.item() * 6
    assert create(3, 36, mode="faithful")(wide, y).loss.item() * 36 == pytest.approx(narrow_loss, rel=1e-12)


def classes_of(seed, num=4, dim=5):
    """Random covariances, shares of the classes and noise."""
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(num, dim, dim, generator=generator, dtype=torch.float64) * 0.05
    share = torch.rand(num, generator=generator, dtype=torch.float64) + 0.1
    return root @ root.mT, share / share.sum()


@pytest.mark.parametrize("seed", range(8))
def test_pooling_bounds_the_mean_rate_of_the_classes_from_above(seed):
    """log det is concave: the rate of the pooled covariance is at least the mean of the classes' rates."""
    covariance, share = classes_of(seed)
    sigma, dim = 0.025, 5
    eye = torch.eye(dim, dtype=torch.float64)
    per_class = 0.5 * torch.linalg.slogdet(eye + covariance / sigma**2)[1]
    exact_information = (share * per_class).sum().item()  # I(z̃; x | y) of Gaussian classes
    # a batch whose class covariances are exactly the given ones, with class sizes in the given shares
    x, y = [], []
    for c in range(4):
        root = torch.linalg.cholesky(covariance[c] * dim)
        repeats = max(1, round(share[c].item() * 40))
        x += [sign * root[:, d] for d in range(dim) for sign in (1, -1)] * repeats
        y += [c] * (2 * dim * repeats)
    x, y = torch.stack(x), torch.tensor(y)
    sizes = torch.bincount(y).double()
    exact_information = (sizes / sizes.sum() * per_class).sum().item()
    bound = dim * create(4, dim, sigma, mode="faithful")(x, y).loss.item()
    assert bound >= exact_information * (1 + 1e-6)
    one = create(4, dim, sigma, mode="faithful")(x[y == 0], y[y == 0]).loss.item() * dim
    assert one == pytest.approx(per_class[0].item(), rel=1e-9)  # one covariance: equality


def test_gaussian_rate_bounds_the_information_of_two_points_from_above():
    """x = ±a with equal probability in one dimension: I(z̃; x) by integration is under the rate."""
    a, sigma = 0.05, 0.025
    grid = torch.linspace(-1, 1, 200001, dtype=torch.float64)
    normal = torch.distributions.Normal
    density = 0.5 * sum(normal(torch.tensor(m, dtype=torch.float64), sigma).log_prob(grid).exp() for m in (-a, a))
    entropy = -torch.trapezoid(torch.special.xlogy(density, density), grid).item()
    information = entropy - 0.5 * math.log(2 * math.pi * math.e * sigma**2)
    x, y = torch.tensor([[a], [-a]], dtype=torch.float64), torch.zeros(2, dtype=torch.long)
    bound = create(1, 1, sigma, mode="faithful")(x, y).loss.item()
    assert 0 < information < math.log(2)
    assert bound > information * 1.05


def test_unbiased_rate_has_the_expectation_of_the_population_in_small_classes():
    """Mean variance of S_w with two samples per class: half of the population's when biased, all of it when not."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(200) // 2
    x = torch.randn(200, 8, generator=generator, dtype=torch.float64)
    biased = create(100, 8, mode="faithful")(x, y).diagnostics["var_mean"].item()
    unbiased = create(100, 8, mode="faithful", unbiased=True)(x, y).diagnostics["var_mean"].item()
    four_sd = 4 * 0.5 * (2 / 800) ** 0.5  # 800 squares of normal variables
    assert biased == pytest.approx(0.5, abs=four_sd)
    assert unbiased == pytest.approx(2 * biased, rel=1e-9)


def test_memory_gives_single_samples_a_spread_and_forgets():
    y = torch.arange(6)
    past, now = torch.zeros(6, 3), torch.ones(6, 3)
    plain = create(6, 3, mode="faithful")
    remembering = create(6, 3, memory=4)
    plain(past, y)
    remembering(past, y)
    assert plain(now, y).loss == 0
    x = now.clone().requires_grad_()
    out = remembering(x, y)
    out.loss.backward()
    assert out.loss > 0
    assert (x.grad > 0).all()  # away from the past mean costs
    for _ in range(20):
        remembering(now, y)
    assert torch.allclose(remembering.past_mean, now, atol=0.02)
    assert (remembering.past_count == 4).all()
    kept = remembering.past_mean.clone()
    bad = now.clone()
    bad[0, 0] = torch.nan
    assert remembering(bad, y).loss == 0
    remembering.eval()
    remembering(past, y)
    assert torch.equal(remembering.past_mean, kept)


def test_memory_never_counts_more_samples_than_it_may():
    """A batch with more samples of a class than n leaves a mean with the weight of n samples."""
    x = torch.randn(10, 3, generator=torch.Generator().manual_seed(0))
    surrogate = create(1, 3, memory=4)
    surrogate(x, torch.zeros(10, dtype=torch.long))
    assert surrogate.past_count.tolist() == [4]
    assert torch.allclose(surrogate.past_mean[0], x.mean(dim=0))


def test_bfloat16_features_stay_within_two_percent():
    generator = torch.Generator().manual_seed(0)
    z, y = torch.rand(64, 16, generator=generator), torch.arange(64) % 4
    surrogate = create(4, 16, memory=0)
    low = z.bfloat16().requires_grad_()
    out = surrogate(low, y)
    out.loss.backward()
    assert out.loss.item() == pytest.approx(surrogate(z, y).loss.item(), rel=0.02)
    assert out.loss.dtype is torch.float32
    assert low.grad.dtype is torch.bfloat16


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's own, while tracing
def test_forward_compiles_as_one_graph():
    z, y = torch.rand(20, 16), torch.arange(20) % 4
    surrogate = create(4, 16).eval()
    compiled = torch.compile(surrogate, fullgraph=True, backend="aot_eager")
    assert compiled(z, y).loss.item() == pytest.approx(surrogate(z, y).loss.item(), rel=1e-5)


def test_a_class_too_large_to_square_is_not_remembered():
    surrogate = create(2, 3, memory=4)
    y = torch.tensor([0, 0, 1, 1])
    z = torch.tensor([[0.0] * 3, [1.0] * 3, [1e30] * 3, [1.0] * 3])
    out = surrogate(z, y)
    assert out.loss > 0
    assert surrogate.past_count.tolist() == [2, 0]
    assert torch.equal(surrogate.past_mean[1], torch.zeros(3))


def test_a_class_that_is_only_remembered_is_not_among_the_present_ones():
    """SPEC 0.3: absent from the batch, it contributes nothing and takes no share of the weight."""
    s = surrogates.create(
        "rate", feature_shape=(3,), num_classes=2, sigma=0.1, memory=8, class_weight="equal", mode="faithful"
    )
    z, first = torch.rand(6, 3, generator=torch.Generator().manual_seed(0)), torch.zeros(6, dtype=torch.long)
    alone = s(z, first)
    s.past_mean.zero_(), s.past_count.zero_()
    s(z + 1, first + 1)  # the other class is remembered now, and has no sample in the next batch
    again = s(z, first)
    assert again.diagnostics["class_used"].tolist() == [1, 0]
    assert torch.equal(again.loss, alone.loss)
