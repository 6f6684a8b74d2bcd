"""Two-dimensional pictures of features: principal components and t-SNE, and two numbers that need no picture.

Legend: N pictures, D feature dim.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from splitveil.core.errors import InputError

FEWEST = 10  # with fewer pictures there is nothing to see
NEIGHBOURS = 10
PERPLEXITY = 30.0
FIRST = 50  # t-SNE looks at so many principal components: distances in them hardly differ, and it is much faster


@dataclass(frozen=True)
class Embedding:
    """Where N pictures lie in two planes."""

    pca: NDArray[np.float64]  # [N, 2]
    ratio: tuple[float, float]  # share of the variance along each axis of `pca`
    tsne: NDArray[np.float64]  # [N, 2]
    neighbours: float  # share of a picture's nearest neighbours, in all D dimensions, that are of its class

    def to_dict(self) -> dict[str, Any]:
        """For explain.json: planes from -1 to 1. Both axes of `pca` keep one unit; those of t-SNE have none to keep."""
        return {
            "pca": _unit(self.pca),
            "pca_ratio": [round(share, 4) for share in self.ratio],
            "tsne": _unit(self.tsne, each=True),
            "neighbours": round(self.neighbours, 4),
        }


def embed(
    features: NDArray[np.floating],
    labels: NDArray[np.integer],
    seed: int,
    *,
    towards: NDArray[np.float64] | None = None,
) -> Embedding:
    """Embed features [N, ...] of pictures with labels [N]; equal input and seed give equal output.

    A principal axis has no sign of its own. `towards` is a plane [N, 2] of the same pictures, which then lie on the
    same sides here, so that two planes can be compared by eye; without it the signs are those of scikit-learn (the
    largest loading is positive). Raises InputError for fewer than 10 pictures, for features that are not finite, and
    for features that are all equal (a collapsed encoder).
    """
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE
    from sklearn.neighbors import NearestNeighbors

    x = np.asarray(features, dtype=np.float64).reshape(len(features), -1)  # [N, D]
    if len(x) < FEWEST:
        raise InputError(f"An embedding needs at least {FEWEST} pictures, not {len(x)}.")
    if not np.isfinite(x).all():
        raise InputError("The features are not finite.")
    scale = np.abs(x - x.mean(0)).max()
    if scale <= 1e-9 * max(1.0, np.abs(x).max()):
        raise InputError("The features of all pictures are equal: the encoder has collapsed.")
    x = (x - x.mean(0)) / scale  # t-SNE and neighbours do not care about units; small numbers keep their digits
    # full: the same numbers on every machine, where "auto" would choose a random method for wide features
    components = PCA(n_components=min(FIRST, *x.shape), svd_solver="full").fit(x)
    reduced = components.transform(x)
    plane = np.zeros((len(x), 2))
    plane[:, : min(2, reduced.shape[1])] = reduced[:, :2]
    if towards is not None:
        together = (plane * (towards - towards.mean(0))).sum(0)  # [2] covariance of each axis with the other plane's
        plane *= np.where(together < 0, -1.0, 1.0)
    ratio = (*components.explained_variance_ratio_.tolist(), 0.0)[:2]
    tsne = TSNE(
        perplexity=min(PERPLEXITY, (len(x) - 1) / 3),
        init=plane / max(float(plane[:, 0].std()), 1e-12) * 1e-4,  # deterministic, as small as t-SNE wants its start
        random_state=seed % 2**32,
    ).fit_transform(reduced)
    count = min(NEIGHBOURS, len(x) - 1)
    near = NearestNeighbors(n_neighbors=count).fit(x).kneighbors(return_distance=False)  # [N, count], without itself
    agreement = float((labels[near] == labels[:, None]).mean())
    return Embedding(plane, (ratio[0], ratio[1]), np.asarray(tsne, dtype=np.float64), agreement)


def within_share(features: NDArray[np.floating], labels: NDArray[np.integer]) -> float:
    """Share of the variance of features [N, ...] that lies within classes: what a surrogate lowers."""
    x = np.asarray(features, dtype=np.float64).reshape(len(features), -1)
    x = x - x.mean(0)
    within = sum(np.square(x[labels == y] - x[labels == y].mean(0)).sum() for y in np.unique(labels))
    return float(within / max(np.square(x).sum(), 1e-300))  # 0 where nothing varies at all


def _unit(plane: NDArray[np.float64], *, each: bool = False) -> list[list[float]]:
    centred = plane - (plane.max(0) + plane.min(0)) / 2
    far = np.abs(centred).max(0) if each else np.abs(centred).max()
    scaled = centred / np.maximum(far, 1e-12)  # features with a single dimension have a flat plane
    return [[round(float(a), 4), round(float(b), 4)] for a, b in scaled]
