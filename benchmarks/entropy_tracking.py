"""Write docs/entropy-tracking.md: every registered surrogate against the true conditional entropy.

python benchmarks/entropy_tracking.py [OUT]
"""

from __future__ import annotations

import sys
from pathlib import Path

from splitveil.core.files import write_atomic
from splitveil.experiments.entropy_tracking import markdown, measure


def main() -> None:
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("docs/entropy-tracking.md")
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(out, markdown(*measure()))
    print(f"wrote {out}")


if __name__ == "__main__":
    main()
