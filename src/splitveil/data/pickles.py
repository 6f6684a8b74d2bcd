"""Read the plain data in a pickle without running anything that the pickle names.

The official CIFAR "python" archives hold dictionaries of lists, byte strings and numpy arrays of bytes. A pickle
rebuilds an array by calling three functions of numpy; this reader puts inert stand-ins in their place and refuses every
other name, so that a forged file can produce wrong data but never run code.
"""

from __future__ import annotations

import io
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from splitveil.core.errors import DataError


class _RefusedError(Exception):
    """The pickle names something that is not on the list."""


class _DType:
    """Stands for numpy.dtype; remembers its code."""

    def __init__(self, code: bytes | str = b"", *_: Any) -> None:
        self.code = code.decode("ascii", "replace") if isinstance(code, bytes) else code

    def __setstate__(self, state: Any) -> None:
        """Byte order and the like: of no consequence for single bytes."""


class _Array:
    """Stands for numpy.ndarray; remembers shape, type and bytes."""

    state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


def _reconstruct(*_: Any) -> _Array:
    return _Array()


ALLOWED = {
    ("numpy", "dtype"): _DType,
    ("numpy", "ndarray"): _Array,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
}


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Only stand-ins, never the thing itself."""
        if (module, name) not in ALLOWED:
            raise _RefusedError(f"it asks for {module}.{name}")
        return ALLOWED[module, name]


def read_pickle(content: bytes, where: Path) -> dict[str, Any]:
    """A dictionary of plain values and of uint8 arrays; anything else is an error."""
    try:
        value = _Reader(io.BytesIO(content), encoding="bytes").load()
        if not isinstance(value, dict):
            raise _RefusedError("it is not a dictionary")
        return {_text(key): _plain(item) for key, item in value.items()}
    except Exception as error:  # a damaged pickle can fail in any way; none of them may pass
        raise DataError(
            f"{where} is not a plain data file: {error}.", "Use the binary archive of the same data set."
        ) from None


def _text(key: Any) -> str:
    return key.decode("utf-8") if isinstance(key, bytes) else str(key)


def _plain(value: Any) -> Any:
    if isinstance(value, _Array):
        _, shape, dtype, fortran, raw = value.state
        if dtype.code not in ("u1", "uint8") or fortran or not isinstance(raw, bytes) or len(raw) != math.prod(shape):
            raise _RefusedError("it holds an array that is not one of bytes")
        return np.frombuffer(bytearray(raw), np.uint8).reshape(shape)
    return value
