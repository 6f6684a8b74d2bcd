"""Output never ends a command."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress


class Steady(io.TextIOWrapper):
    """Text whose reader may go away, as `head` does: what is said after that goes nowhere, and the work goes on.

    It shares its buffer with the stream under it, so that neither keeps text back (`write_through`): what a program
    says through both stays in order.
    """

    @classmethod
    def over(cls, stream: io.TextIOWrapper) -> Steady:
        """The same place with the same habits; a letter that it has no code for becomes a question mark."""
        with suppress(BrokenPipeError):
            stream.reconfigure(write_through=True)  # and says what was printed before
        return cls(stream.buffer, stream.encoding, "replace", line_buffering=stream.line_buffering, write_through=True)

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except BrokenPipeError:
            self._speak_to_nobody()
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except BrokenPipeError:
            self._speak_to_nobody()

    def close(self) -> None:
        """The buffer is the other stream's to close, which somebody may put back in this one's place."""
        self.flush()

    def _speak_to_nobody(self) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)


def open_streams() -> None:
    """A letter that the other side has no code for becomes a question mark, and what is said to a closed stream, or to
    a reader that is gone, goes nowhere."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (it stays open to the end)
        elif isinstance(stream, io.TextIOWrapper) and stream is getattr(sys, f"__{name}__"):
            setattr(sys, name, Steady.over(stream))
        elif isinstance(stream, io.TextIOWrapper):  # this one already, or that of a test
            stream.reconfigure(errors="replace")
