"""Planes of features against plain linear algebra, and features that cannot be shown."""

from __future__ import annotations

import numpy as np
import pytest

from splitveil.core.errors import InputError
from splitveil.experiments.embedding import Embedding, embed, within_share

LABELS = np.arange(36) % 3


def clusters(dim: int = 6, apart: float = 8.0) -> np.ndarray:
    """Three classes, each around a corner of its own."""
    random = np.random.default_rng(0)
    x = random.normal(size=(36, dim))
    x[np.arange(36), LABELS] += apart
    return x


def test_pca_is_the_plane_of_largest_variance() -> None:
    x = clusters()
    found = embed(x, LABELS, seed=1)
    centred = x - x.mean(0)
    variance, axes = np.linalg.eigh(centred.T @ centred / (len(x) - 1))
    assert found.ratio == pytest.approx(variance[::-1][:2] / variance.sum())
    for column in range(2):
        expected = centred @ axes[:, -1 - column]
        ours = found.pca[:, column]
        assert abs(np.corrcoef(expected, ours)[0, 1]) == pytest.approx(1.0)


@pytest.mark.parametrize("signs", [(1, 1), (-1, 1), (1, -1), (-1, -1)])
def test_a_second_plane_lies_as_the_first(signs: tuple[int, int]) -> None:
    plain = embed(clusters(), LABELS, seed=1)
    first = plain.pca * signs + (3.0, -5.0)  # where its middle is does not matter
    second = embed(clusters(), LABELS, seed=1, towards=first)
    assert np.allclose(second.pca, plain.pca * signs)
    assert second.ratio == plain.ratio


def test_equal_input_and_seed_give_equal_output() -> None:
    first, again = embed(clusters(), LABELS, seed=3).to_dict(), embed(clusters(), LABELS, seed=3).to_dict()
    assert first == again
    for plane in ("pca", "tsne"):
        assert np.abs(first[plane]).max() == 1.0


def test_both_axes_of_pca_keep_one_unit_and_those_of_tsne_fill_the_plane() -> None:
    corners = np.array([[0.0, 5.0], [4.0, 5.0], [4.0, 6.0]])
    shown = Embedding(pca=corners, ratio=(0.8, 0.2), tsne=corners, neighbours=1.0).to_dict()
    assert shown["pca"] == [[-1.0, -0.25], [1.0, -0.25], [1.0, 0.25]]
    assert shown["tsne"] == [[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0]]


def test_neighbours_are_counted_as_a_loop_counts_them() -> None:
    x = clusters(apart=1.0)
    agreeing = 0
    for i in range(36):
        others = sorted((j for j in range(36) if j != i), key=lambda j: float(((x[i] - x[j]) ** 2).sum()))
        agreeing += sum(LABELS[j] == LABELS[i] for j in others[:10])
    assert embed(x, LABELS, seed=0).neighbours == pytest.approx(agreeing / 360)


def test_tsne_keeps_well_separated_classes_apart() -> None:
    plane = embed(clusters(apart=40.0), LABELS, seed=0).tsne
    for i in range(36):
        nearest = min((j for j in range(36) if j != i), key=lambda j: float(((plane[i] - plane[j]) ** 2).sum()))
        assert LABELS[nearest] == LABELS[i]


def test_features_of_any_shape_and_scale() -> None:
    x = clusters()
    shaped = embed(x.reshape(36, 2, 3) * 1e-7, LABELS, seed=2)
    assert shaped.neighbours == embed(x, LABELS, seed=2).neighbours
    line = embed(x[:, :1], LABELS, seed=2)
    assert line.ratio == pytest.approx((1.0, 0.0))
    assert np.isfinite(line.tsne).all()
    assert np.isfinite(embed(x[:10], LABELS[:10], seed=2).tsne).all()  # the fewest that can be shown


@pytest.mark.parametrize(
    ("features", "reason"),
    [
        (np.ones((36, 4)), "collapsed"),
        (np.full((36, 4), np.nan), "not finite"),
        (clusters()[:9], "at least 10"),
    ],
)
def test_features_that_cannot_be_shown(features: np.ndarray, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        embed(features, LABELS[: len(features)], seed=0)


def test_share_of_the_variance_within_classes() -> None:
    x = clusters()
    total = within = 0.0
    for i in range(36):
        mine = x[LABELS[i] == LABELS].mean(0)
        for d in range(x.shape[1]):
            total += (x[i, d] - x[:, d].mean()) ** 2
            within += (x[i, d] - mine[d]) ** 2
    assert within_share(x.reshape(36, 3, 2), LABELS) == pytest.approx(within / total)
    assert within_share(np.ones((36, 2)), LABELS) == 0.0
