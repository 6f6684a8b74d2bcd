"""How numbers are written on the page: one function per kind, so that a quantity looks the same everywhere."""

from __future__ import annotations

from collections.abc import Callable

DASH = "\N{EN DASH}"  # no value
MINUS = "\N{MINUS SIGN}"


def percent(value: float | None, digits: int = 1) -> str:
    """A fraction as per cent; the space does not break.

    >>> percent(0.889)
    '88.9\\xa0%'
    """
    return DASH if value is None else f"{100 * value:.{digits}f}\u00a0%"


def points(difference: float | None) -> str:
    """A signed difference of two fractions, in percentage points.

    >>> points(0.021)
    '+2.1'
    """
    return DASH if difference is None else f"{100 * difference:+.1f}".replace("-", MINUS)


def mse(value: float | None) -> str:
    """Four decimals; scientific below one thousandth, where four decimals would hide the number."""
    if value is None:
        return DASH
    return f"{value:.4f}" if value >= 1e-3 or value == 0 else f"{value:.1e}"


def ssim(value: float | None, digits: int = 2) -> str:
    return DASH if value is None else f"{value:.{digits}f}".replace("-", MINUS)


def decibel(value: float | None) -> str:
    return DASH if value is None else f"{value:.1f}\u00a0dB"


def plain(value: float | None) -> str:
    """Four significant digits, for axes and tables of curves."""
    return DASH if value is None else f"{value:.4g}".replace("-", MINUS)


def quantity(value: float | None) -> str:
    """A large count with a metric prefix.

    >>> quantity(711539), quantity(940)
    ('711.5\\xa0k', '940')
    """
    if value is None:
        return DASH
    for limit, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= limit:
            return f"{value / (1e3 if prefix == 'k' else limit):.1f}\u00a0{prefix}"
    return f"{value:,.0f}".replace(",", "\u202f")


def size(value: float | None) -> str:
    """Bytes, with decimal prefixes."""
    return DASH if value is None else quantity(value) + ("B" if value >= 1e4 else "\u00a0B")


def duration(seconds: float | None) -> str:
    if seconds is None or seconds < 0:
        return DASH
    if seconds < 60:
        return f"{seconds:.1f}\u00a0s" if seconds < 10 else f"{seconds:.0f}\u00a0s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}\u00a0min\u00a0{rest:02d}\u00a0s"
    return f"{minutes // 60}\u00a0h\u00a0{minutes % 60:02d}\u00a0min"


def span(ends: tuple[float, float] | None, write: Callable[[float], str] = mse) -> str:
    """An interval in brackets, or nothing."""
    return "" if ends is None else f"[{write(ends[0])}, {write(ends[1])}]"
