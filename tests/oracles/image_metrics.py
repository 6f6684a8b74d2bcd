"""SPEC 8.2 as obvious float64 loops."""

from __future__ import annotations

import math


def ssim(x: list, y: list) -> float:
    """Mean over channels and pixels of the similarity map; x, y [ch][h][w] nested lists."""
    window = [[math.exp(-(i * i + j * j) / (2 * 1.5**2)) for j in range(-5, 6)] for i in range(-5, 6)]
    total = sum(map(sum, window))
    values = []
    for a, b in zip(x, y, strict=True):
        height, width = len(a), len(a[0])
        for row in range(height):
            for column in range(width):
                mean_a = mean_b = square_a = square_b = product = 0.0
                for i in range(-5, 6):
                    for j in range(-5, 6):
                        r, c = row + i, column + j
                        inside = 0 <= r < height and 0 <= c < width
                        p, q = (a[r][c], b[r][c]) if inside else (0.0, 0.0)
                        weight = window[i + 5][j + 5] / total
                        mean_a += weight * p
                        mean_b += weight * q
                        square_a += weight * p * p
                        square_b += weight * q * q
                        product += weight * p * q
                var_a, var_b = square_a - mean_a**2, square_b - mean_b**2
                cov = product - mean_a * mean_b
                values.append(
                    (2 * mean_a * mean_b + 1e-4)
                    * (2 * cov + 9e-4)
                    / ((mean_a**2 + mean_b**2 + 1e-4) * (var_a + var_b + 9e-4))
                )
    return sum(values) / len(values)


def mse(x: list, y: list) -> float:
    differences = [
        (p - q) ** 2
        for a, b in zip(x, y, strict=True)
        for r, s in zip(a, b, strict=True)
        for p, q in zip(r, s, strict=True)
    ]
    return sum(differences) / len(differences)


def psnr(error: float) -> float:
    return 10 * math.log10(1 / max(error, 1e-10))
