"""`slot_gated` as SPEC 4 writes it: loops over classes, samples and slots, in float64."""

from __future__ import annotations

import torch
from tests.oracles import pieces


def evaluate(x, y, p, o, sigma, num_classes, noise, past=None, projection=None):
    """Loss, fit loss and monitor of one batch, before any shut-off. `noise` [S, W] is the stored slot draw."""
    batch, labels, samples = x.shape[0], y.tolist(), x.unbind()
    losses, gates, shares, mses, logs, stats = {}, {}, {}, {}, [], {}
    for c in range(num_classes):
        mine = [i for i in range(batch) if labels[i] == c]
        old = [] if past is None else list(past.get(c, []))
        if not mine or len(mine) + len(old) < 3:
            continue
        rows = [samples[i] for i in mine]
        detach = o.centroid_grad == "detach"
        slots, r, old_r = assign([v.detach() if detach else v for v in rows], old, p, o, noise, projection)
        if o.space == "raw":
            h = rows + old
        else:
            h = [cross(token(v, projection), slots, p, o) for v in rows]
            h += [cross(token(v, projection), slots, p, o).detach() for v in old]
        weights = r + [v.detach() for v in old_r]
        mean, var, mass = moments(h, weights)
        if o.unbiased:
            var = [v * len(h) / (len(h) - 1) for v in var]
        stats[c] = (mine, old, mean, var, mass, h)
    if o.pooled and stats:
        total = sum(len(s[5]) for s in stats.values())
        shared = 0.0
        for s in stats.values():
            plain = [m - 1e-8 for m in s[4]]
            for k in range(len(s[3])):
                shared = shared + len(s[5]) * plain[k] / sum(plain) * s[3][k] / total
        stats = {c: (*s[:3], [shared] * len(s[3]), *s[4:]) for c, s in stats.items()}
    for c, (mine, old, mean, var, mass, h) in stats.items():
        share = len(mine) / batch
        weight = slot_weights(mass, len(h), pieces.scalar(p, o, "slot_power"))
        losses[c] = 0.0
        for k in range(len(mean)):
            v = torch.clamp(var[k], min=pieces.floor(o, sigma))
            losses[c] = losses[c] + weight[k] * pieces.psi(v, mean[k], p, o, sigma).mean()
        gates[c], shares[c] = pieces.class_gate(share, p, o), share
        centre = sum(h[: len(mine)]) / len(mine)
        mses[c] = sum(((v - centre) ** 2).mean() for v in h[: len(mine)]) / len(mine)
        if o.surrogate_update == "likelihood":
            logs += likelihood([samples[i].detach() for i in mine], old, p, o, sigma, noise, projection)
    intra = sum((shares[c] * mses[c] for c in mses), torch.zeros(()))
    if o.normalise and mses:
        intra = intra / sum(shares.values())
    fit = -sum(logs) / len(logs) / x.shape[1] if logs else torch.zeros((), dtype=torch.float64)
    return {"loss": pieces.aggregate(losses, gates, shares, o), "fit": fit, "intra": intra, "per_class_loss": losses}


def token(v, projection):
    """h = LN₀(x), of the projection where there is one."""
    return pieces.layer_norm(v if projection is None else v @ projection)


def assign(rows, old, p, o, noise, projection):
    """Slots of one class and the responsibilities of its batch and past samples."""
    h = [token(v, projection) for v in rows]
    old_h = [token(v, projection) for v in old]
    slots = slot_attention(h + old_h, p, o, noise)
    source, old_source = h, old_h
    if o.assign_source == "enhanced":
        source = [cross(v, slots, p, o) for v in h]
        old_source = [cross(v, slots, p, o) for v in old_h]
    r = [responsibilities(v, slots, p, o) for v in source]
    return slots, r, [responsibilities(v, slots, p, o) for v in old_source]


def first_slots(p, o, noise):
    """s⁰_k = slot_mu + exp(slot_log_sigma) ⊙ ε_k."""
    mu, sigma = p["slots.start.slot_mu"], p["slots.start.slot_log_sigma"].exp()
    if o.slot_init == "per_slot":
        sigma = torch.clamp(sigma, max=0.1)
    draws = noise if o.slot_noise != "mean" else torch.zeros_like(noise)
    return [(mu[k] if o.slot_init == "per_slot" else mu) + sigma * draws[k] for k in range(len(noise))]


def slot_attention(h, p, o, noise):
    """SPEC 4.1: T rounds; every sample divides its attention between the slots."""
    width = h[0].shape[0]
    tau = width**0.25 if o.slot_temp == "quarter" else 1.0
    slots = first_slots(p, o, noise)
    normed = [pieces.layer_norm(v, p["slots.norm_in.weight"], p["slots.norm_in.bias"]) for v in h]
    keys = [pieces.linear(v, p, "slots.key") for v in normed]
    values = [pieces.linear(v, p, "slots.value") for v in normed]
    for _ in range(o.num_iterations):
        queries = []
        for s in slots:
            s = pieces.layer_norm(s, p["slots.norm_slot.weight"], p["slots.norm_slot.bias"])
            queries.append(pieces.linear(s, p, "slots.query") / width**0.5)
        a = [torch.softmax(torch.stack([k @ q / tau * o.attn_logit_scale for q in queries]), 0) for k in keys]
        updated = []
        for k, s in enumerate(slots):
            column = [v[k] for v in a]
            if o.token_norm == "mean":
                column = [v + 1e-8 for v in column]
            u = sum(w * v for w, v in zip(column, values, strict=True))
            if o.token_norm == "mean":
                u = u / torch.clamp(sum(column), min=1e-8)
            s = pieces.gru(u, s, p, "slots.gru")
            m = pieces.layer_norm(s, p["slots.norm_mlp.weight"], p["slots.norm_mlp.bias"])
            m = torch.clamp(pieces.linear(m, p, "slots.mlp.0"), min=0)
            updated.append(s + pieces.linear(m, p, "slots.mlp.2"))
        slots = updated
    return slots


def cross(h, slots, p, o):
    """SPEC 4.2 for one sample."""
    width, heads = h.shape[0], o.num_heads
    size = width // heads

    def project(v, name):
        return pieces.linear(v, p, f"cross.{name}") if o.qkv_proj else v

    q = project(pieces.layer_norm(h, p["cross.norm_query.weight"], p["cross.norm_query.bias"]), "query")
    normed = [pieces.layer_norm(s, p["cross.norm_slot.weight"], p["cross.norm_slot.bias"]) for s in slots]
    k = [project(s, "key") for s in normed]
    v = [project(s, "value") for s in normed]
    parts = []
    for head in range(heads):
        at = slice(head * size, (head + 1) * size)
        a = torch.softmax(torch.stack([q[at] @ s[at] / size**0.5 for s in k]), 0)
        parts.append(sum(a[j] * v[j][at] for j in range(len(v))))
    o_vector = pieces.linear(torch.cat(parts), p, "cross.out")
    h = h + torch.tanh(p["cross.alpha_xattn"]) * o_vector
    f = pieces.layer_norm(h, p["cross.norm_ffn.weight"], p["cross.norm_ffn.bias"])
    f = pieces.linear(torch.nn.functional.gelu(pieces.linear(f, p, "cross.ffn.0")), p, "cross.ffn.2")
    return h + torch.tanh(p["cross.alpha_ffn"]) * f


def responsibilities(h, slots, p, o):
    """r_m [S]: softmax of β_a·cos(h, s_k). The cosine guards squared norms with 1e-8."""
    cosines = [h @ s / ((h @ h + 1e-8) * (s @ s + 1e-8)).sqrt() for s in slots]
    logits = pieces.scalar(p, o, "assign_temp") * torch.stack(cosines)
    if o.assign == "hard":
        return torch.nn.functional.one_hot(logits.argmax(), len(slots)).double()
    return torch.softmax(logits, 0)


def moments(h, r):
    """w_k, μ_k, var_k (SPEC 4.3)."""
    means, variances, masses = [], [], []
    for k in range(len(r[0])):
        mass = sum(v[k] for v in r) + 1e-8
        mean = sum(a[k] * v for a, v in zip(r, h, strict=True)) / mass
        variances.append(sum(a[k] * (v - mean) ** 2 for a, v in zip(r, h, strict=True)) / mass)
        means.append(mean)
        masses.append(mass)
    return means, variances, masses


def slot_weights(mass, members, power):
    """w̃_k = (w_k/M)^γ / Σ_l (w_l/M)^γ."""
    raised = [torch.exp(power * torch.log(m / members)) for m in mass]
    return [v / sum(raised) for v in raised]


def likelihood(rows, old, p, o, sigma, noise, projection):
    """log Σ_k w̃_k N(h; μ_k, var_k) of each batch sample on the fixed h (SPEC 9.1)."""
    _, r, old_r = assign(rows, old, p, o, noise, projection)
    h = rows + old if o.space == "raw" else [pieces.layer_norm(v) for v in rows + old]
    mean, var, mass = moments(h, r + [v.detach() for v in old_r])
    weight = slot_weights(mass, len(h), pieces.scalar(p, o, "slot_power"))
    var = [torch.clamp(v, min=pieces.floor(o, sigma)) for v in var]
    out = []
    for v in h[: len(rows)]:
        terms = [weight[k].log() + pieces.gaussian_log_density(v, mean[k], var[k]) for k in range(len(mean))]
        out.append(torch.logsumexp(torch.stack(terms), 0))
    return out
