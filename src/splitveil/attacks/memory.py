"""What a long attack has finished so far, so that an interruption costs one of its steps and not all of them."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Memory(Protocol):
    """Tensors by the name of the step that made them. A step is made anew where nothing fitting is remembered."""

    def recall(self, step: str) -> dict[str, Tensor] | None: ...

    def remember(self, step: str, tensors: dict[str, Tensor]) -> None: ...


class Forgetful:
    """Remembers nothing: an attack that is interrupted starts from its beginning."""

    def recall(self, step: str) -> dict[str, Tensor] | None:
        return None

    def remember(self, step: str, tensors: dict[str, Tensor]) -> None:
        """Nothing is kept."""
