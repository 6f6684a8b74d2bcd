"""`python -m splitveil`, and the command `splitveil`."""

from splitveil.core.stopping import ctrl_c_between_imports


def main() -> None:
    """Load the command and run it; Ctrl-C while it loads, or in its last moment, is no error."""
    try:
        with ctrl_c_between_imports():
            from splitveil.cli import main as run

            run()
    except KeyboardInterrupt:
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
