"""The classifier path of `slot_cross` as SPEC 2.3 writes it: loops over samples, heads, tokens and slots."""

from __future__ import annotations

import math

import pytest
import torch
from tests.oracles import pieces
from tests.oracles import slot_cross as oracle
from tests.surrogates.cases import assert_close, build, make_case

SHAPE = (4, 3, 2)
FAITHFUL = {
    "mode": "faithful", "feature_shape": SHAPE, "num_slots": 3, "num_heads": 2, "hidden": 8, "slot_noise": "fixed",
    "dropout": 0.0,
}  # fmt: skip
VARIANTS = {
    "faithful": {},
    "one head": {"num_heads": 1},
    "normed after": {"post_norm": True},
    "mean slot": {"pool": "slots"},
    "prototype": {"pool": "slots", "post_norm": True},
    "competition": {"slot_axis": "slots"},
}


def classified(z, p, o, noise):
    """Logits, t⁺ and attention [H, N, S] of one sample z [d, h, w]."""
    t = oracle.tokens(z.flatten(), SHAPE)
    slots = oracle.slots_of(t, p, o, noise)
    size = t.shape[1] // o.num_heads
    query = pieces.linear(t, p, "head.query")
    key = [pieces.linear(s, p, "head.key") for s in slots]
    value = [pieces.linear(s, p, "head.value") for s in slots]
    enhanced, attention = [], torch.zeros(o.num_heads, len(t), len(slots), dtype=torch.float64)
    for n in range(len(t)):
        parts = []
        for head in range(o.num_heads):
            at = slice(head * size, (head + 1) * size)
            a = torch.softmax(torch.stack([query[n, at] @ k[at] / math.sqrt(size) for k in key]), 0)
            attention[head, n] = a.detach()
            parts.append(sum(a[k] * value[k][at] for k in range(len(slots))))
        enhanced.append(t[n] + pieces.linear(torch.cat(parts), p, "head.out"))  # t⁺ = t + e
    enhanced = torch.stack(enhanced)
    if o.post_norm:  # LN(t+e), linear d→d, LN
        enhanced = pieces.layer_norm(enhanced, p["head.post.0.weight"], p["head.post.0.bias"])
        enhanced = pieces.linear(enhanced, p, "head.post.1")
        enhanced = pieces.layer_norm(enhanced, p["head.post.2.weight"], p["head.post.2.bias"])
    pooled = enhanced.mean(0)
    if o.pool == "slots":  # mean of slots, MLP d→128→C, ReLU
        pooled = torch.clamp(pieces.linear(sum(slots) / len(slots), p, "head.hidden"), min=0)
    return pieces.linear(pooled, p, "head.classifier"), enhanced, torch.stack(slots), attention


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_tokens_slots_and_attention_equal_the_loops(variant):
    case = make_case(2, 5, 3, 24)
    s = build("slot_cross", case, **FAITHFUL | VARIANTS[variant])
    z = case.x.reshape(-1, *SHAPE).requires_grad_()
    found = s.classify(z)
    p = {name: value.detach().clone().requires_grad_() for name, value in s.named_parameters()}
    x = case.x.reshape(-1, *SHAPE).clone().requires_grad_()
    every = [classified(one, p, s.options, s.slots.start.noise.double()) for one in x]
    for place, name in enumerate(("logits", "tokens", "slots", "attention")):
        assert_close(getattr(found, name), torch.stack([one[place] for one in every]), 1e-9, name)
    # L_CE trains through it: the gradient reaches z (so the encoder) and every parameter that made the logits
    weight = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    (found.logits * weight).sum().backward()
    (torch.stack([one[0] for one in every]) * weight).sum().backward()
    if VARIANTS[variant].get("pool") != "slots":
        assert z.grad.abs().max() > 0
    assert_close(z.grad, x.grad, 1e-9, "gradient of z")
    for name, value in s.named_parameters():
        if p[name].grad is not None:
            assert_close(value.grad, p[name].grad, 1e-9, name, floor=1e-6)


def test_the_hidden_width_of_the_prototypes_head_is_128():
    s = build("slot_cross", make_case(2, 5, 3, 24), **{**FAITHFUL, "hidden": 128, "pool": "slots"})
    assert s.head.hidden.out_features == 128
