"""Packages that can be called: `sv.audit(model, data)` is a function of the package `splitveil.audit`.

Importing a submodule binds the package to its name in the parent, so a function of that name must live behind it.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any, ClassVar


class CallablePackage(ModuleType):
    """Signature and docstring are those of the function; it is imported when somebody asks for them, or calls it."""

    target: ClassVar[str]  # "package.module:function"

    def __init_subclass__(cls) -> None:
        # every class has one of its own, which would hide it
        cls.__doc__ = vars(CallablePackage)["__doc__"]  # type: ignore[method-assign]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function()(*args, **kwargs)

    @classmethod
    def _function(cls) -> Callable[..., Any]:
        module, _, name = cls.target.partition(":")
        return getattr(importlib.import_module(module), name)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self._function())

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        name = self.__name__.rpartition(".")[2]
        return f"{name}{self.__signature__}\n\n{inspect.getdoc(self._function())}"
