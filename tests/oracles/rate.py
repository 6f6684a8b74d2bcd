"""The pooled within-class rate by loops over samples and a dense D×D determinant, float64."""

from __future__ import annotations

import torch


def rate(x, y, *, sigma, unbiased=False, class_weight="share", past_mean=None, past_count=None):
    """1/(2D)·log det(I + S_w/σ²) with S_w put together sample by sample; 0 where no class can be used."""
    dim = x.shape[1]
    labels = [int(c) for c in y]
    noise = max(sigma, 1e-3) ** 2
    mean, known = {}, {}
    for c in set(labels):
        rows = [x[i] for i in range(len(labels)) if labels[i] == c]
        past = float(past_count[c]) if past_count is not None else 0.0
        known[c] = len(rows) + past
        total = sum(rows)
        if past:
            total = total + past * past_mean[c].double()
        mean[c] = total / known[c]
    used = [c for c in mean if known[c] >= (2 if unbiased else 1)]
    samples = sum(labels.count(c) for c in used)
    pooled = torch.zeros(dim, dim, dtype=torch.float64)
    for i, c in enumerate(labels):
        if c in used:
            weight = 1 / samples if class_weight == "share" else 1 / (len(used) * labels.count(c))
            if unbiased:
                weight = weight * known[c] / (known[c] - 1)
            pooled = pooled + weight * torch.outer(x[i] - mean[c], x[i] - mean[c])
    return torch.linalg.slogdet(torch.eye(dim, dtype=torch.float64) + pooled / noise)[1] / (2 * dim)
