"""Output never ends a command."""

from __future__ import annotations

import io
import os
import sys


class Steady(io.TextIOWrapper):
    """Text whose reader may go away, as `head` does: what is said after that goes nowhere, and the work goes on."""

    @classmethod
    def over(cls, stream: io.TextIOWrapper) -> Steady:
        """The same place with the same habits; a letter that it has no code for becomes a question mark."""
        by_line, at_once = stream.line_buffering, stream.write_through
        return cls(stream.buffer, stream.encoding, "replace", line_buffering=by_line, write_through=at_once)

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
