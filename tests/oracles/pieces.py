"""Small formulas of SPEC 0-4 that several oracles need, as obvious float64 arithmetic on one class at a time."""

from __future__ import annotations

import torch


def layer_norm(x, weight=None, bias=None):
    """LN over the last axis, eps 1e-5 (SPEC 0.1)."""
    mean = x.mean(-1, keepdim=True)
    var = ((x - mean) ** 2).mean(-1, keepdim=True)
    out = (x - mean) / (var + 1e-5).sqrt()
    return out if weight is None else out * weight + bias


def linear(x, p, name):
    """x W' + b with the parameters called `name`."""
    out = x @ p[f"{name}.weight"].T
    return out + p[f"{name}.bias"] if f"{name}.bias" in p else out


def gru(u, s, p, name):
    """Cho et al. 2014, with the two biases of PyTorch: input u, state s."""
    i = (p[f"{name}.weight_ih"] @ u + p[f"{name}.bias_ih"]).chunk(3)
    h = (p[f"{name}.weight_hh"] @ s + p[f"{name}.bias_hh"]).chunk(3)
    reset, keep = torch.sigmoid(i[0] + h[0]), torch.sigmoid(i[1] + h[1])
    new = torch.tanh(i[2] + reset * h[2])
    return (1 - keep) * new + keep * s


def log_tau(o, sigma):
    """log τ, τ = max(θσ², 1e-8) + γ."""
    return torch.tensor(max(o.var_threshold * max(sigma, 1e-3) ** 2, 1e-8) + o.gamma, dtype=torch.float64).log()


def scalar(p, o, name):
    """A scalar of SPEC 4.5: constant, learned, or learned through a softplus."""
    stored = p.get(f"penalty.scalars.learned.{name}")
    if stored is None:
        return torch.tensor(getattr(o, name), dtype=torch.float64)
    slopes = ("assign_temp", "slot_power", "snr_sharp", "softplus_beta", "class_gate_a")
    return torch.log1p(stored.exp()) if o.constrain == "positive" and name in slopes else stored


def floor(o, sigma):
    """eps_var."""
    return min(1e-4, log_tau(o, sigma).exp().item() / 10) if o.eps_var == "tau" else o.eps_var


def psi(var, mean, p, o, sigma):
    """Gates times base of one centre: var, mean [D] -> [D] (SPEC 3, 4.4)."""
    lv = (var + o.gamma).log()
    if o.base == "rate":
        base = 0.5 * torch.log1p(var / max(sigma, o.rate_sigma, 1e-3) ** 2)
    elif o.hinge == "relu":
        base = torch.clamp(lv - log_tau(o, sigma), min=0)
    else:
        beta = scalar(p, o, "softplus_beta")
        base = torch.nn.functional.softplus(beta * (lv - log_tau(o, sigma) - scalar(p, o, "margin_m"))) / (beta + 1e-8)
    if o.gates == "none":
        return base
    h = layer_norm(lv, p["penalty.dimension_gate.norm.weight"], p["penalty.dimension_gate.norm.bias"])
    h = torch.nn.functional.gelu(linear(h, p, "penalty.dimension_gate.mlp.0"))
    soft = torch.sigmoid(linear(h, p, "penalty.dimension_gate.mlp.2"))
    ratio = var / (mean**2 + 1e-8) if o.snr == "notes" else mean**2 / (var + 1e-8)
    hard = torch.sigmoid(scalar(p, o, "snr_sharp") * (ratio - scalar(p, o, "snr_thresh")))
    gates = soft * hard
    return (gates.detach() if o.gate_grad == "detach" else gates) * base


def class_gate(share, p, o):
    """g_c (SPEC 3)."""
    if o.gates == "none" or o.class_gate == "off":
        return torch.tensor(1.0, dtype=torch.float64)
    gate = torch.sigmoid(scalar(p, o, "class_gate_a") * (share - scalar(p, o, "class_gate_b")))
    return gate.detach() if o.gate_grad == "detach" else gate


def gaussian_log_density(x, mean, var):
    """log N(x; mean, diag var), all [D]."""
    return (-0.5 * (2 * torch.pi * var).log() - 0.5 * (x - mean) ** 2 / var).sum()


def aggregate(class_losses, gates, shares, o):
    """rob_loss and per-class contributions from {class: L̂_c} (SPEC 3, 4.4; 9 n)."""
    zero = torch.zeros((), dtype=torch.float64)
    if not class_losses:
        return zero
    if o.class_weight == "equal":
        return sum(gates[c] * class_losses[c] for c in class_losses) / len(class_losses)
    total = sum(shares[c] * gates[c] * class_losses[c] for c in class_losses)
    return total / sum(shares[c] for c in class_losses) if o.normalise else total
