"""Lloyd's algorithm per class as SPEC 1.2 states it: float64 loops, no batching."""

from __future__ import annotations

import numpy as np


def lloyd(x, y, init, max_steps):
    """Centroids [C, K, D], assignment [N]; warm start from `init`; classes with at most K samples stay unchanged."""
    x, centroids = np.asarray(x, np.float64), np.array(init, np.float64)
    classes, clusters, _ = centroids.shape
    assignment = np.zeros(len(x), np.int64)
    for c in range(classes):
        rows = [i for i in range(len(x)) if y[i] == c]
        if len(rows) <= clusters:
            continue
        previous = None
        for _ in range(max_steps):
            current = [_nearest(x[i], centroids[c]) for i in rows]
            if current == previous:
                break
            for k in range(clusters):
                members = [x[i] for i, chosen in zip(rows, current, strict=True) if chosen == k]
                if members:
                    centroids[c, k] = sum(members) / len(members)
            previous = current
    for i in range(len(x)):
        assignment[i] = _nearest(x[i], centroids[y[i]])
    return centroids, assignment


def inertia(x, y, centroids):
    """Σ_i min_k ‖x_i − c_{y_i k}‖²."""
    x, centroids = np.asarray(x, np.float64), np.asarray(centroids, np.float64)
    return sum(min(((x[i] - center) ** 2).sum() for center in centroids[y[i]]) for i in range(len(x)))


def _nearest(point, centers):
    return int(np.argmin([((point - center) ** 2).sum() for center in centers]))
