"""How to read the page."""

from __future__ import annotations

from splitveil.report.markup import Html, say, section

WORDS = (
    *("attack", "mse", "ssim", "psnr", "floor", "protocol", "knows", "interval", "closest", "recon_acc", "rob_loss"),
    *("weight", "macs", "bound"),
)


def glossary() -> Html:
    entries = "".join(
        f"<div><dt>{say(f'glossary.{word}')}</dt><dd>{say(f'glossary.{word}_is')}</dd></div>" for word in WORDS
    )
    return section("glossary", say("glossary.title"), None, Html(f'<dl class="glossary">{entries}</dl>'))
