"""`gated` as SPEC 3 writes it: one class after another, one sample after another, in float64."""

from __future__ import annotations

import torch
from tests.oracles import pieces


def evaluate(x, y, p, o, sigma, num_classes, past=None, projection=None):
    """Loss, fit loss (of the likelihood) and monitor. `p`: parameters by name; `past`: {class: [m, D]}, detached."""
    batch, labels, samples = x.shape[0], y.tolist(), x.unbind()
    losses, gates, shares, mses, nll = {}, {}, {}, {}, []
    stats = {}
    for c in range(num_classes):
        mine = [i for i in range(batch) if labels[i] == c]
        old = [] if past is None else list(past.get(c, []))
        if not mine or len(mine) + len(old) < 2:
            continue
        rows = [samples[i] for i in mine]
        alpha = pooling(rows, old, p, o, projection, o.alpha_grad == "detach")
        h = [represent(v, p, o, projection) for v in rows] + [represent(v, p, o, projection).detach() for v in old]
        mean, var = moments(h, alpha)
        if o.unbiased:
            var = var * len(h) / (len(h) - 1)
        stats[c] = (mine, old, mean, var, h, alpha)
    if o.pooled and stats:
        members = {c: len(s[4]) for c, s in stats.items()}
        shared = sum(members[c] * stats[c][3] for c in stats) / sum(members.values())
        stats = {c: (*s[:3], shared, *s[4:]) for c, s in stats.items()}
    for c, (mine, old, mean, var, h, _) in stats.items():
        share = len(mine) / batch
        var = torch.clamp(var, min=pieces.floor(o, sigma))
        loss = pieces.psi(var, mean, p, o, sigma).mean()
        losses[c] = loss * share**o.pool_power if o.pool_power else loss
        gates[c], shares[c] = pieces.class_gate(share, p, o), share
        mses[c] = sum(((v - mean) ** 2).mean() for v in h[: len(mine)]) / len(mine)
        if o.surrogate_update == "likelihood":
            nll += likelihood([samples[i].detach() for i in mine], old, p, o, sigma, projection)
    intra = sum((shares[c] * mses[c] for c in mses), torch.zeros(()))
    if o.normalise and mses:
        intra = intra / sum(shares.values())
    loss = pieces.aggregate(losses, gates, shares, o)
    fit = -sum(nll) / len(nll) / x.shape[1] if nll else torch.zeros((), dtype=torch.float64)
    return {"loss": loss, "fit": fit, "intra": intra, "per_class_loss": losses}


def pooling(rows, old, p, o, projection, detach):
    """α over the samples of one class; past samples are constants."""
    logits = []
    for number, v in enumerate(rows + old):
        v = v.detach() if detach or number >= len(rows) else v
        t = v if projection is None else v @ projection
        h = pieces.layer_norm(t, p.get("pooling.norm.weight"), p.get("pooling.norm.bias"))
        gated = torch.tanh(pieces.linear(h, p, "pooling.value")) * torch.sigmoid(pieces.linear(h, p, "pooling.gate"))
        logit = pieces.linear(gated, p, "pooling.score")[0]
        logits.append(logit.detach() if number >= len(rows) else logit)
    largest = max(v.item() for v in logits)
    raised = [(v - largest).exp() for v in logits]
    total = sum(raised)
    # "gradient flows through batch members only": the weights of past samples are constants
    return [v / total for v in raised[: len(rows)]] + [(v / total).detach() for v in raised[len(rows) :]]


def represent(v, p, o, projection):
    """h: the vector whose variance is taken."""
    if o.space == "raw":
        return v
    name = "pooling.norm" if projection is None else "norm"
    return pieces.layer_norm(v, p.get(f"{name}.weight"), p.get(f"{name}.bias"))


def moments(h, alpha):
    """μ = Σ α h and Σ α (h−μ)²; the weights sum to one."""
    total = sum(alpha)
    mean = sum(a * v for a, v in zip(alpha, h, strict=True)) / total
    return mean, sum(a * (v - mean) ** 2 for a, v in zip(alpha, h, strict=True)) / total


def likelihood(rows, old, p, o, sigma, projection):
    """log N(h; μ, var) of each batch sample on the fixed h (SPEC 9.1)."""
    alpha = pooling(rows, old, p, o, projection, True)
    h = [v if o.space == "raw" else pieces.layer_norm(v) for v in rows + old]
    mean, var = moments(h, alpha)
    var = torch.clamp(var, min=pieces.floor(o, sigma))
    return [pieces.gaussian_log_density(v, mean, var) for v in h[: len(rows)]]
