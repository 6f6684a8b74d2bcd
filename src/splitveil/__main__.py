"""`python -m splitveil`, the same as the command `splitveil`."""

from splitveil.cli import main

main()
