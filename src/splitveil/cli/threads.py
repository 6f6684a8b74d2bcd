"""How torch's threads wait for each other on a CPU that other programs use, too."""

from __future__ import annotations

import os

SPINS = "1000"  # looks at a lock before a thread sleeps; the 300,000 of libgomp keep a core that another thread needs


def give_way() -> None:
    """Let a thread that waits give its core away soon; to be called before torch is loaded, which reads it then.

    Two trainings at once on two cores, seconds per epoch: 4 with this, up to 75 without; one alone 1.1 and 1.0.
    """
    if "OMP_WAIT_POLICY" not in os.environ:  # somebody has decided
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
