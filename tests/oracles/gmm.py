"""The `gmm` loss as SPEC 1.3-1.5 states it: loops over samples, classes and clusters, float64, autograd."""

from __future__ import annotations

import math
from collections import defaultdict

import torch


def gmm(
    x,
    y,
    bank,
    *,
    sigma,
    form,
    aggregation,
    kappa,
    rho_max,
    gradient="eq6",
    class_size="counted",
    update_weights=False,
    class_weight="equal",
    stats_index="class",
    align="true",
    gamma=0.01,
    theta=0.125,
    per_dim=True,
    rate_sigma=0.0,
):
    """Loss, contributions per class and intra_mse; `bank` holds mean, mass, fitted, variance, diagonal, full."""
    classes, clusters, dim = bank["mean"].shape
    total = float(bank["mass"].sum())
    labels = [int(c) for c in y]
    sigma = max(sigma, 1e-3)
    if form.startswith("gauss"):  # the Gaussian forms are rates: against `rate_sigma` where that is more noise
        sigma = max(sigma, rate_sigma)
    members = defaultdict(list)
    for i, c in enumerate(labels):
        if bank["fitted"][c]:
            distances = [((x[i].detach() - bank["mean"][c, k]) ** 2).sum().item() for k in range(clusters)]
            members[c, distances.index(min(distances))].append(i)

    weight = {}
    for c in range(classes):
        scope = total if aggregation == "paper" else float(bank["mass"][c].sum())
        for k in range(clusters):
            weight[c, k] = float(bank["mass"][c, k]) / scope if scope > 0 else 0.0
    updated = dict(weight)
    if update_weights:
        for c, k in weight:
            n, keep = len(members[c, k]), max(total - len(labels), 0)
            updated[c, k] = (weight[c, k] * keep + n * min(1.0, total / len(labels))) / total
    if class_weight == "equal":
        fitted = sum(bool(flag) for flag in bank["fitted"])
        for c in range(classes):
            inside = sum(updated[c, k] for k in range(clusters))
            for k in range(clusters):
                updated[c, k] = updated[c, k] / inside / fitted if inside > 0 else 0.0

    def lists_of(c):
        """Weight and cluster of the variance at each place of the lists of class c."""
        if align == "true":
            return [weight[c, k] for k in range(clusters)], list(range(clusters))
        weights = [weight[c, k] for k in range(clusters) if bank["mass"][c, k] > 1]
        sources = [k for k in range(clusters) if bank["mass"][c, k] > 0]
        weights += [0.01] * (clusters - len(weights))
        sources = sources or [0]
        return weights, sources + [sources[-1]] * (clusters - len(sources))

    present = sorted(set(labels))
    ordered = sorted(labels)
    value, read_weight, per_class = {}, {}, [torch.zeros((), dtype=torch.float64) for _ in range(classes)]
    for rank, c in enumerate(present):
        source = ordered[rank] if stats_index == "sample" else c
        weights, sources = lists_of(source)
        for k in range(clusters):
            rows = members[c, k]
            if not rows:
                continue
            size = total
            if aggregation == "released":
                size = total / classes if class_size == "nominal" else float(bank["mass"][c].sum())
            expected = weights[k] * size
            rho = min(rho_max, kappa * len(rows) / expected) if expected > 0 else rho_max
            value[c, k] = component(
                [x[i] - bank["mean"][c, k] for i in rows],
                bank,
                (source, sources[k]),
                rho,
                form,
                sigma,
                gamma,
                theta,
                gradient,
            )
            read_weight[c, k] = weights[k]
    scale = dim if form.startswith("gauss") and not per_dim else 1.0

    if aggregation == "paper":
        for c in range(classes):
            for k in range(clusters):
                if not bank["fitted"][c] or updated[c, k] == 0:
                    continue
                cost = value.get((c, k))
                if cost is None:
                    cost = component([], bank, (c, k), 0.0, form, sigma, gamma, theta).detach()
                per_class[c] = per_class[c] + updated[c, k] * (-math.log(updated[c, k]) + scale * cost)
    else:
        counted = [c for c in present if bank["fitted"][c]]
        share = {c: labels.count(c) if class_weight == "share" else 1 for c in counted}
        for c in counted:
            for k in range(clusters):
                if (c, k) in value:
                    part = share[c] / sum(share.values())
                    per_class[c] = per_class[c] + part * read_weight[c, k] * scale * value[c, k]
    loss = sum(per_class)
    intra = 0.0
    for (c, k), rows in members.items():
        for i in rows:
            intra += ((x[i].detach() - bank["mean"][c, k]) ** 2).mean().item() / len(labels)
    return loss, torch.stack(per_class), intra


def component(diffs, bank, stored, rho, form, sigma, gamma, theta, gradient="eq6"):
    """form_j of SPEC 1.4 for a component with the members' x−μ and the stored statistics of component `stored`."""
    c, k = stored
    dim = bank["mean"].shape[-1]
    noise = sigma**2
    if form in ("hinge_scalar", "linear", "gauss_scalar"):
        v = (1 - rho) * bank["variance"][c, k]
        for d in diffs:
            v = v + rho * (d**2).mean() / len(diffs)
            if gradient == "batch":  # the value of eq. 6, the gradient of the batch's own variance
                v = v + (1 - rho) * ((d**2).mean() - (d.detach() ** 2).mean()) / len(diffs)
        if form == "hinge_scalar":
            return torch.relu(torch.log(v + gamma) - math.log(theta * noise + gamma))
        return v + 0.001 if form == "linear" else 0.5 * torch.log1p(v / noise)
    if form == "gauss_diag":
        s = (1 - rho) * bank["diagonal"][c, k]
        for d in diffs:
            s = s + rho * d**2 / len(diffs)
            if gradient == "batch":
                s = s + (1 - rho) * (d**2 - d.detach() ** 2) / len(diffs)
        return 0.5 * torch.log1p(s / noise).sum() / dim
    full = (1 - rho) * bank["full"][c, k]
    for d in diffs:
        full = full + rho * torch.outer(d, d) / len(diffs)
    eye = torch.eye(dim, dtype=torch.float64)
    if form == "gauss_full":
        # log det(Σ+σ²I) − D·log σ² with the σ² taken out before the determinant
        return torch.linalg.slogdet(full / noise + eye)[1] / (2 * dim)
    tau = max(theta * noise, 1e-8) + gamma
    return torch.relu(torch.linalg.slogdet(full + gamma * eye)[1] / dim - math.log(tau))
