"""Parts as text for a terminal, Markdown, or LaTeX with booktabs."""

from __future__ import annotations

import re
from dataclasses import replace

from splitveil.experiments.compare.part import Grid, Part

MINUS = "\N{MINUS SIGN}"
PAGE = 40  # rows of a LaTeX table
SYMBOLS = {  # what names of methods hold and pdflatex refuses as characters
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "η": "eta", "θ": "theta",  # noqa: RUF001
    "κ": "kappa", "λ": "lambda", "μ": "mu", "π": "pi", "ρ": "rho", "σ": "sigma", "τ": "tau", "φ": "varphi",  # noqa: RUF001
    "ω": "omega", "Δ": "Delta", "Σ": "Sigma", "→": "to", "≤": "leq", "≥": "geq", "≈": "approx", "∞": "infty",
}  # fmt: skip
NO_WIDER = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}"  # than the text; else as it is


def as_text(parts: list[Part]) -> str:
    """Aligned columns."""
    blocks = []
    for part in parts:
        lines = [part.title, "=" * len(part.title), *part.intro]
        for grid in part.grids:
            lines += ["", f"{grid.caption}:", *_aligned(grid)]
        lines += [""] if part.remarks and (part.grids or part.intro) else []
        lines += [f"- {remark}" for remark in part.remarks]
        lines += [line for paragraph in part.closing for line in ("", paragraph)]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def _aligned(grid: Grid) -> list[str]:
    table = [grid.head, *grid.rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(grid.head))]
    lines = ["  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip() for row in table]
    return [lines[0], "  ".join("-" * width for width in widths), *lines[1:]]


def as_markdown(parts: list[Part], level: int = 2) -> str:
    """Headings from `level` down."""
    blocks: list[str] = []
    for part in parts:
        blocks += [f"{'#' * level} {escape_markdown(part.title)}"]
        blocks += [" ".join(escape_markdown(sentence) for sentence in part.intro)] if part.intro else []
        for grid in part.grids:
            blocks += [f"{escape_markdown(grid.caption)}:", markdown_table(grid.head, grid.rows)]
        if part.remarks:
            blocks.append("\n".join(f"- {escape_markdown(remark)}" for remark in part.remarks))
        blocks += [escape_markdown(paragraph) for paragraph in part.closing]
    return "\n\n".join(blocks) + "\n"


def markdown_table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(escape_markdown(word) for word in line) + " |" for line in lines)


def escape_markdown(words: str) -> str:
    """Text that is shown as written: a run's name can hold anything, markup and links included."""
    for mark in "\\`*|":
        words = words.replace(mark, f"\\{mark}")
    words = words.replace("&", "&amp;").replace("<", "&lt;").replace("](", "]\\(").replace("\n", " ")
    return re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\_", words)  # inside a word an underscore is only itself


def as_latex(parts: list[Part]) -> str:
    """`table`s that fit a page, no wider than the text. What is said about a part is a note below its first table."""
    blocks = [r"% needs \usepackage{booktabs,graphicx}"]
    for part in parts:
        blocks.append(f"% {_comment(part.title)}")
        note = " ".join(escape_latex(sentence) for sentence in [*part.intro, *part.remarks, *part.closing])
        tables = [table for grid in part.grids for table in _pages(grid)]
        blocks += [_latex_table(table, part.title, "" if place else note) for place, table in enumerate(tables)]
        if note and not tables:
            blocks.append(rf"\par\noindent{{\footnotesize\textbf{{{escape_latex(part.title)}.}} {note}\par}}")
    return "\n".join(blocks) + "\n"


def _pages(grid: Grid) -> list[Grid]:
    """The grid in pieces: of a table that is taller than the page, LaTeX prints no more than the page holds."""
    starts = range(0, len(grid.rows), PAGE)
    if len(starts) < 2:
        return [grid]
    return [
        replace(grid, caption=f"{grid.caption} ({place} of {len(starts)})", rows=grid.rows[start : start + PAGE])
        for place, start in enumerate(starts, start=1)
    ]


def _latex_table(grid: Grid, title: str, note: str) -> str:
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{escape_latex(title)}. {escape_latex(grid.caption)}.}}",
            rf"{NO_WIDER}{{\begin{{tabular}}{{{'l' * len(grid.head)}}}",
            r"\toprule",
            _latex_line(grid.head),
            r"\midrule",
            *(_latex_line(row) for row in grid.rows),
            r"\bottomrule",
            r"\end{tabular}}",
            *([rf"\par\smallskip\parbox{{\linewidth}}{{\footnotesize\raggedright {note}}}"] if note else []),
            r"\end{table}",
        ]
    )


def _latex_line(words: list[str]) -> str:
    return " & ".join(escape_latex(word) for word in words) + r" \\"


def escape_latex(words: str) -> str:
    """Characters that LaTeX would act on, as characters; the sign of a negative number as a minus, not a hyphen."""
    words = re.sub(r"(?<![\w.)-])-(?=\d)", MINUS, words)
    table = {char: f"\\{char}" for char in "&%$#_{}"}
    table |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    table |= {char: rf"$\{name}$" for char, name in SYMBOLS.items()}
    table |= {
        "±": r"$\pm$",
        MINUS: "$-$",
        "<": r"$<$",
        ">": r"$>$",
        "|": r"\textbar{}",
        "[": "{[}",
        "]": "{]}",
        "\n": " ",
    }
    return re.sub("-(?=-)", "-{}", "".join(table.get(char, char) for char in words))  # `--` would become a dash


def _comment(words: str) -> str:
    return words.replace("\n", " ")
