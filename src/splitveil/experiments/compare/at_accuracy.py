"""What to tell somebody who asked for an accuracy (`--at`) and gets no number there."""

from __future__ import annotations

from splitveil.experiments.compare.comparison import Comparison, Table
from splitveil.experiments.compare.record import NOT_ATTACKED


def unread(comparison: Comparison) -> list[str]:
    """One sentence per table and accuracy asked for at which no method has a value."""
    sentences = [_sentence(table, at) for table in comparison.tables for at in comparison.view.at]
    return list(dict.fromkeys(sentence for sentence in sentences if sentence))


def _sentence(table: Table, at: float) -> str:
    equal = table.equal
    place = f"at {100 * at:.2f} % accuracy"
    if equal is None:
        why = "have not been attacked" if table.group.setting.mode == NOT_ATTACKED else "have no attack with pictures"
        return f"Nothing can be interpolated {place}: the runs on {table.group.setting.data} {why}."
    if not equal.values:
        short = "; ".join(method for method in table.group.methods if method not in equal.curves)
        lacking = f"; with fewer than two strengths: {short}" if short else ""
        return (
            f"Nothing can be interpolated {place}: it takes two methods with two or more strengths each{lacking}. "
            "Add strengths with: splitveil sweep RECIPE --grid train.privacy_weight=4,16"
        )
    if any(one.value is not None for one in equal.values if one.at == at):
        return ""
    spans = "; ".join(f"{name} from {100 * c.low:.2f} to {100 * c.high:.2f} %" for name, c in equal.curves.items())
    return f"Nothing can be read {place}: no method's strengths cover it ({spans})."
