"""`enhanced` as SPEC 5 writes it: loops over sequences, tokens, slots and classes, in float64."""

from __future__ import annotations

import math

import torch
from tests.oracles import pieces

gelu = torch.nn.functional.gelu


def norm(v, p, name):
    return pieces.layer_norm(v, p[f"{name}.weight"], p[f"{name}.bias"])


def multi_scale(v, p, o):
    """5.1 for one token."""
    parts = []
    for j, factor in enumerate(o.scale_factors):
        if factor == 1.0:
            parts.append(v)
        else:
            hidden = gelu(pieces.linear(v, p, f"encoder.scale.scales.{j}.0"))
            parts.append(pieces.linear(hidden, p, f"encoder.scale.scales.{j}.2"))
    return v * torch.sigmoid(pieces.linear(torch.cat(parts), p, "encoder.scale.gate"))


def variance(values):
    """Unbiased variance of a list of numbers or vectors; 0 for one."""
    mean = sum(values) / len(values)
    if len(values) == 1:
        return torch.zeros_like(mean)
    return sum((v - mean) ** 2 for v in values) / (len(values) - 1)


def root(v):
    return torch.where(v > 0, torch.where(v > 0, v, 1.0).sqrt(), 0.0)


def complexity(rows, owner, p, o):
    """5.2: one number for the batch. `owner`: class of each token."""
    total = 0.0
    if o.complexity_axis == "coordinates":
        for v in rows:
            var = variance(list(v))
            total = total + (var + root(var) + v.max() - v.min()) / 3 / len(rows)
    else:
        for c in sorted(set(owner)):
            mine = [v for v, k in zip(rows, owner, strict=True) if k == c]
            var = variance(mine)
            stacked = torch.stack(mine)
            extent = stacked.max(0).values - stacked.min(0).values
            total = total + len(mine) / len(rows) * ((var + root(var) + extent) / 3).mean()
    quarter = rows[0].shape[0] // 4
    mean, var = sum(rows) / len(rows), variance(rows)
    inputs = torch.cat([total.expand(quarter), mean[:quarter], root(var)[:quarter], var[:quarter]])
    hidden = norm(gelu(pieces.linear(inputs, p, "encoder.complexity.first")), p, "encoder.complexity.norm")
    hidden = gelu(pieces.linear(hidden, p, "encoder.complexity.second"))
    raw = torch.sigmoid(pieces.linear(hidden, p, "encoder.complexity.third"))[0]
    share = torch.sigmoid(p["encoder.complexity.dynamic_weight"])
    return torch.clamp(share * raw + (1 - share) * 0.5, o.gate_threshold, 1 - o.gate_threshold)


def slots_of(tokens, p, o, noise):
    """5.3 and 5.4: slots of one sequence."""
    name = "encoder.slots"
    width = tokens[0].shape[0]
    sigma = torch.clamp(p[f"{name}.start.slot_log_sigma"].exp(), 0.001, 0.1)
    mu = p[f"{name}.start.slot_mu"]
    draws = torch.zeros_like(noise) if o.slot_noise == "mean" else noise
    slots = [(mu[k] if o.slot_init == "per_slot" else mu) + sigma * draws[k] for k in range(len(noise))]
    keys = [pieces.linear(v, p, f"{name}.key") for v in tokens]
    values = [pieces.linear(v, p, f"{name}.value") for v in tokens]

    def rival(s):
        return torch.sigmoid(pieces.linear(torch.relu(pieces.linear(s, p, f"{name}.rival_in")), p, f"{name}.rival_out"))

    for t in range(o.num_iterations):
        temperature = max(0.1, 1.0 - o.temperature_decay * t)
        queries = [pieces.linear(s, p, f"{name}.query") for s in slots]
        logits = torch.stack([torch.stack([q @ k for k in keys]) for q in queries]) / (math.sqrt(width) * temperature)
        if o.slot_axis == "tokens":
            a = torch.softmax(logits, 1)
        else:
            a = torch.softmax(logits, 0)
            if o.token_norm == "mean":
                a = (a + 1e-8) / torch.clamp((a + 1e-8).sum(1, keepdim=True), min=1e-8)
        updated = []
        for k, s in enumerate(slots):
            s = norm(s + sum(a[k, n] * values[n] for n in range(len(values))), p, f"{name}.norm_update")
            hidden = gelu(pieces.linear(s, p, f"{name}.mlp_in"))
            s = norm(s + pieces.linear(hidden, p, f"{name}.mlp_out"), p, f"{name}.norm_mlp")
            updated.append(s * rival(s) if o.competition == "every_iteration" else s)
        slots = updated
    return slots if o.competition == "every_iteration" else [s * rival(s) for s in slots]


def enhance(x, slots, p, o):
    """5.5 and 5.6 for one token."""
    name = "encoder.hierarchy"
    size = x.shape[0] // o.num_heads
    q = pieces.linear(x, p, f"{name}.query")
    k = [pieces.linear(s, p, f"{name}.key") for s in slots]
    v = [pieces.linear(s, p, f"{name}.value") for s in slots]
    parts = []
    for head in range(o.num_heads):
        at = slice(head * size, (head + 1) * size)
        a = torch.softmax(torch.stack([q[at] @ s[at] / math.sqrt(size) for s in k]), 0)
        parts.append(sum(a[j] * v[j][at] for j in range(len(v))))
    first = norm(x + pieces.linear(torch.cat(parts), p, f"{name}.out"), p, f"{name}.norm_cross")
    ffn = pieces.linear(gelu(pieces.linear(first, p, f"{name}.ffn_in")), p, f"{name}.ffn_out")
    second = norm(first + ffn, p, f"{name}.norm_ffn")
    fused = pieces.layer_norm(x + second)
    rebuilt = pieces.linear(gelu(pieces.linear(fused, p, f"{name}.rebuild_in")), p, f"{name}.rebuild_out")
    return norm(rebuilt, p, f"{name}.norm_out")


def encode(x, y, p, o, shape, noise, past, projection):
    """Tokens, X_g and X_e of every sample, and the complexity gate."""
    size, labels = x.shape[0], y.tolist()
    if o.tokens == "spatial":
        samples = [list(v.reshape(shape[0], -1).T) for v in x.unbind()]
    else:
        samples = [[v if projection is None else v @ projection] for v in x.unbind()]
    flat = [t for tokens in samples for t in tokens]
    owner = [labels[i] for i in range(size) for _ in samples[i]]
    gate = complexity(flat, owner, p, o) if o.complexity_gate == "scalar" else None
    gated = [[multi_scale(t, p, o) * (1.0 if gate is None else gate) for t in tokens] for tokens in samples]
    enhanced = [None] * size
    if o.tokens == "class":
        for c in sorted(set(owner)):
            mine = [i for i in range(size) if labels[i] == c]
            old = [] if past is None else [g for _, g, _ in past.get(c, [])]
            slots = slots_of([gated[i][0] for i in mine] + old, p, o, noise)
            for i in mine:
                enhanced[i] = [enhance(gated[i][0], slots, p, o)]
    else:
        for i in range(size):
            slots = slots_of(gated[i], p, o, noise)
            enhanced[i] = [enhance(t, slots, p, o) for t in gated[i]]
    join = (lambda tokens: torch.stack(tokens).T.flatten()) if o.tokens == "spatial" else (lambda tokens: tokens[0])
    return samples, [join(t) for t in gated], [join(t) for t in enhanced], enhanced, gate


def nearest(v, centroids, o):
    """5.7: index of the nearest centroid by the combined distance."""
    weight = o.cos_weight * (len(v) if o.cos_relative else 1)
    best, choice = None, None
    for k, c in enumerate(centroids):
        euclid = ((v - c) ** 2).sum().item()
        cosine = 1 - (v @ c).item() / (v.norm().item() * c.norm().item() + 1e-8)
        d = euclid + weight * cosine if o.distance == "corrected" else euclid - weight * cosine
        if best is None or d < best:
            best, choice = d, k
    return choice


def information(var, o, sigma):
    """5.8: I_ck of one cluster from its variances [D] (without the shift)."""
    if o.base == "rate":
        return (0.5 * torch.log1p(var / max(sigma, o.rate_sigma, 1e-3) ** 2)).mean()
    shifted, tau = var + 1e-4, 1e-4
    if o.base == "threshold":
        shifted, tau = var, max(o.var_threshold * max(sigma, 1e-3) ** 2, 1e-8)
    if not o.log_entropy:
        return shifted.mean()
    return torch.clamp((shifted + 1e-8).log() - math.log(tau), min=0).mean()


def evaluate(x, y, p, o, sigma, num_classes, shape, noise, bank, past=None, projection=None):
    """Loss, fit loss and monitor. `bank`: (centroids [C, K, V], fitted [C]); `past`: {class: [(x, X_g, X_e)]}."""
    parallel = o.architecture == "parallel"
    size, labels, samples = x.shape[0], y.tolist(), x.unbind()
    detach = o.space == "raw" and not parallel
    _, gated, enhanced, _, gate = encode(x.detach() if detach else x, y, p, o, shape, noise, past, projection)
    stats, losses, shares, mses = {}, {}, {}, {}
    for c in range(num_classes):
        mine = [i for i in range(size) if labels[i] == c]
        if not mine or (o.bank_space != "batch" and not bank[1][c]):
            continue
        old = [] if past is None else past.get(c, [])
        sources = [samples[i] if parallel else enhanced[i] for i in mine] + [v[0] if parallel else v[2] for v in old]
        if o.bank_space == "batch" and not parallel:
            centroids = [sum(v.detach() for v in sources[: len(mine)]) / len(mine)]
        else:
            centroids = list(bank[0][c])
        choice = [nearest(v.detach(), centroids, o) for v in sources]
        space = "raw" if parallel else o.space
        h = [{"raw": samples, "gated": gated, "enhanced": enhanced}[space][i] for i in mine]
        h += [v[{"raw": 0, "gated": 1, "enhanced": 2}[space]] for v in old]
        clusters = []
        for k in range(len(centroids)):
            members = [v for v, j in zip(h, choice, strict=True) if j == k]
            if members:
                around = centroids[k] if parallel or space == "enhanced" else sum(members) / len(members)
                var = sum((v - around) ** 2 for v in members) / len(members)
                clusters.append((len(members), var * len(h) / max(len(h) - 1, 1) if o.unbiased else var))
        stats[c] = (mine, h, clusters)
    if o.pooled and stats:
        total = sum(n for s in stats.values() for n, _ in s[2])
        shared = sum(n * v for s in stats.values() for n, v in s[2]) / total
        stats = {c: (s[0], s[1], [(n, shared) for n, _ in s[2]]) for c, s in stats.items()}
    for c, (mine, h, clusters) in stats.items():
        losses[c] = sum(n / len(h) * information(var, o, sigma) for n, var in clusters)
        if parallel:
            rows = [enhanced[i] for i in mine]
            mean = sum(rows) / len(rows)
            attention = (sum((v - mean) ** 2 for v in rows) / len(rows) + 1e-3 + 1e-4).log().mean()
            alpha = gate if o.parallel_alpha == "gate" else o.parallel_alpha
            losses[c] = alpha * losses[c] + (1 - alpha) * attention
        shares[c] = len(mine) / size
        own = h[: len(mine)]
        centre = sum(own) / len(own)
        mses[c] = sum(((v - centre) ** 2).mean() for v in own) / len(own)
    zero = torch.zeros((), dtype=torch.float64)
    loss = sum(losses.values(), zero) / max(len(losses), 1)
    if o.class_weight == "share":
        loss = sum((shares[c] * losses[c] for c in losses), zero)
    fit = None
    if o.surrogate_update == "likelihood":
        fit = rebuilding(x.detach(), y, p, o, shape, noise, past, projection)
    intra = sum((shares[c] * mses[c] for c in mses), zero)
    return {"loss": loss, "fit": fit, "intra": intra, "per_class_loss": losses}


def rebuilding(x, y, p, o, shape, noise, past, projection):
    """How far what comes out of the encoder is from the tokens, on the fixed x (SPEC 9.1)."""
    tokens, _, _, rows, _ = encode(x, y, p, o, shape, noise, past, projection)
    pairs = [(t, e) for i in range(len(x)) for t, e in zip(tokens[i], rows[i], strict=True)]
    return sum(((e - pieces.layer_norm(t)) ** 2).mean() for t, e in pairs) / len(pairs)
