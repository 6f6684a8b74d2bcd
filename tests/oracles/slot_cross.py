"""`slot_cross` as SPEC 2 writes it: loops over samples, heads, slots and classes, in float64."""

from __future__ import annotations

import math

import torch
from tests.oracles import pieces


def tokens(v, shape):
    """t [N, d] of one flattened feature: t[h·W+w, c] = z[c, h, w]."""
    z = v.reshape(shape)
    places = z.reshape(shape[0], -1)
    return torch.stack([places[:, n] for n in range(places.shape[1])])


def norm(v, p, name):
    return pieces.layer_norm(v, p.get(f"{name}.weight"), p.get(f"{name}.bias"))


def slots_of(t, p, o, noise):
    """SPEC 2.2 for one sample: t [N, d] -> list of S vectors."""
    d, heads = t.shape[1], o.num_heads
    size = d // heads
    sigma = p["slots.start.slot_log_sigma"].exp()
    per_slot = o.slot_init == "per_slot"
    if per_slot:
        sigma = torch.clamp(sigma, max=0.1)
    mu = p["slots.start.slot_mu"]
    draws = torch.zeros_like(noise) if o.slot_noise == "mean" else noise
    slots = [(mu[k] if per_slot else mu) + sigma * draws[k] for k in range(len(noise))]
    hat = norm(t, p, "slots.norm_token")
    key, value = pieces.linear(hat, p, "slots.key"), pieces.linear(hat, p, "slots.value")
    scale = o.attn_logit_scale / math.sqrt(size) / (size**0.25 if o.slot_temp == "quarter" else 1.0)
    for _ in range(o.num_iterations):
        queries = [pieces.linear(norm(s, p, "slots.norm_slot"), p, "slots.query") for s in slots]
        parts = [[] for _ in slots]
        for head in range(heads):
            at = slice(head * size, (head + 1) * size)
            logits = torch.stack([key[:, at] @ q[at] * scale for q in queries])  # [S, N]
            if o.slot_axis == "tokens":
                a = torch.softmax(logits, 1)
            else:
                a = torch.softmax(logits, 0)
                if o.token_norm == "mean":
                    a = a + 1e-8
                    a = a / a.sum(1, keepdim=True)
            for k in range(len(slots)):
                parts[k].append(a[k] @ value[:, at])
        updated = []
        for k, s in enumerate(slots):
            u = pieces.linear(torch.cat(parts[k]), p, "slots.out")
            s = pieces.gru(u, s, p, "slots.gru")
            m = torch.clamp(pieces.linear(norm(s, p, "slots.norm_mlp"), p, "slots.mlp.0"), min=0)
            updated.append(s + pieces.linear(m, p, "slots.mlp.2"))
        slots = updated
    return slots


def compared(v, p, o, shape, projection):
    """The vector that is compared with centroids."""
    if o.match == "token_mean":
        return tokens(v, shape).mean(0)
    v = v if projection is None else v @ projection
    return pieces.linear(v, p, "to_slots") if o.match == "project_features" else v


def centroids_of(rows, old, p, o, shape, noise, projection):
    """c_ck: mean slots of the class, brought to the space of the features. `old`: [(x, slots)]."""
    every = [slots_of(tokens(v, shape), p, o, noise) for v in rows] + [list(s) for _, s in old]
    means = [sum(s[k] for s in every) / len(every) for k in range(len(noise))]
    if o.match == "project_slots":
        return [pieces.linear(m, p, "to_features") for m in means]
    if o.match == "pad":
        width = rows[0].shape[0] if projection is None else projection.shape[1]
        return [torch.cat([m, torch.zeros(width - len(m), dtype=m.dtype)]) for m in means]
    return means


def weigh(vectors, centroids, o):
    """Distances and weights of all members of a class (SPEC 2.4, step 2)."""
    delta = [[((v - c) ** 2).sum() for c in centroids] for v in vectors]
    if o.assign == "hard":
        weights = []
        for row in delta:
            best = min(range(len(row)), key=lambda k: row[k].item())
            weights.append([torch.tensor(float(k == best), dtype=torch.float64) for k in range(len(row))])
        return delta, weights
    mean = sum(v.item() for row in delta for v in row) / (len(delta) * len(delta[0]))
    mean = mean if mean > 0 else 1.0
    return delta, [list(torch.softmax(torch.stack([-v / (o.assign_temp * mean) for v in row]), 0)) for row in delta]


def constant_past(values, size):
    """Past members (after the first `size`) carry no gradient."""
    return values[:size] + [[v.detach() for v in row] for row in values[size:]]


def evaluate(x, y, p, o, sigma, num_classes, shape, noise, past=None, projection=None):
    """Loss, fit loss and monitor. `past`: {class: [(x, slots)]}."""
    batch, labels, samples = x.shape[0], y.tolist(), x.unbind()
    losses, shares, mses, logs, stats = {}, {}, {}, [], {}
    for c in range(num_classes):
        mine = [i for i in range(batch) if labels[i] == c]
        if not mine:
            continue
        old = [] if past is None else list(past.get(c, []))
        rows, size = [samples[i] for i in mine], len(mine)
        detach = o.centroid_grad == "detach"
        centres = centroids_of([v.detach() if detach else v for v in rows], old, p, o, shape, noise, projection)
        centres = [v.detach() for v in centres] if detach else centres
        members = rows + [v for v, _ in old]
        vectors = [compared(v, p, o, shape, projection) for v in members]
        delta, a = (constant_past(v, size) for v in weigh(vectors, centres, o))
        masses = [sum(row[k] for row in a) for k in range(len(centres))]
        variances = []
        for k in range(len(centres)):
            if o.assign == "hard" and masses[k] == 0:
                variances.append(torch.zeros((), dtype=torch.float64))
                continue
            if o.space == "slots":
                total = sum(a[i][k] * delta[i][k] for i in range(len(members)))
                variances.append(total / (masses[k] + (1e-8 if o.assign == "soft" else 0.0)))
            else:
                mean = sum(a[i][k] * members[i] for i in range(len(members))) / masses[k]
                total = sum(a[i][k] * ((members[i] - mean) ** 2).sum() for i in range(len(members)))
                variances.append(total / masses[k])
        dimension = len(vectors[0]) if o.space == "slots" else x.shape[1]
        variances = [v if o.norm == "sum" else v / dimension for v in variances]
        if o.unbiased:
            variances = [v * len(members) / max(len(members) - 1, 1) for v in variances]
        h = vectors[:size] if o.space == "slots" else rows
        stats[c] = (mine, members, masses, variances, h)
        if o.surrogate_update == "likelihood":
            logs += likelihood([v.detach() for v in rows], old, p, o, shape, noise, projection)
    if o.pooled and stats:
        mass = sum(m for s in stats.values() for m in s[2])
        shared = sum(m * v for s in stats.values() for m, v in zip(s[2], s[3], strict=True)) / mass
        stats = {c: (*s[:3], [shared] * len(s[3]), s[4]) for c, s in stats.items()}
    for c, (mine, members, masses, variances, h) in stats.items():
        losses[c] = sum(m / len(members) * form(v, o, sigma) for m, v in zip(masses, variances, strict=True))
        shares[c] = len(mine) / batch
        centre = sum(h) / len(h)
        mses[c] = sum(((v - centre) ** 2).mean() for v in h) / len(h)
    if o.class_weight == "equal":
        loss = sum(losses.values()) / len(losses)
    else:
        loss = sum(shares[c] * losses[c] for c in losses)
    fit = -sum(logs) / len(logs) / len(vectors[0]) if logs else None
    return {"loss": loss, "fit": fit, "intra": sum(shares[c] * mses[c] for c in mses), "per_class_loss": losses}


def form(v, o, sigma):
    """SPEC 2.4, step 4."""
    power = max(sigma, 1e-3) ** 2
    if o.hinge:
        return torch.clamp((v + o.gamma).log() - pieces.log_tau(o, sigma), min=0)
    if o.form == "rate":
        return 0.5 * torch.log1p(v / max(sigma, o.rate_sigma, 1e-3) ** 2)
    return torch.log(v + power) if o.form == "log" else v + power


def likelihood(rows, old, p, o, shape, noise, projection):
    """log Σ_k w_ck N(sg[x]; c_ck, σ²_ck·I) of each batch sample, in the space of the compared vectors."""
    centres = centroids_of(rows, old, p, o, shape, noise, projection)
    vectors = [compared(v, p, o, shape, projection) for v in rows + [v for v, _ in old]]
    delta, a = (constant_past(v, len(rows)) for v in weigh(vectors, centres, o))
    out = []
    terms = []
    for k in range(len(centres)):
        mass = sum(row[k] for row in a)
        total = sum(a[i][k] * delta[i][k] for i in range(len(vectors)))
        if mass == 0:
            continue
        var = total / (mass + (1e-8 if o.assign == "soft" else 0.0)) / len(vectors[0])
        terms.append((mass / len(vectors), centres[k], torch.clamp(var, min=1e-8)))
    for v in vectors[: len(rows)]:
        logs = [w.log() + pieces.gaussian_log_density(v, c, var.expand(len(v))) for w, c, var in terms]
        out.append(torch.logsumexp(torch.stack(logs), 0))
    return out
