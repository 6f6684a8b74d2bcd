"""Typed, frozen options with errors a person can act on."""

from __future__ import annotations

from typing import Any, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator

from splitveil.core.errors import ConfigError, nearest


class Options(BaseModel):
    """Base of every options class: frozen, no unknown keys, defaults checked, NaN and infinity refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, value: Any, field: ValidationInfo) -> Any:
        """pydantic reads true as 1: `epochs = true` would train for one."""
        if isinstance(value, bool):
            kind = cls.model_fields[str(field.field_name)].annotation
            kinds = [kind] if get_origin(kind) in (list, tuple) else [kind, *get_args(kind)]  # of a Literal its values
            if bool not in kinds and any(one in (int, float) or type(one) is int for one in kinds):
                raise ValueError("should be a number")
        return value

    @classmethod
    def parse(cls, values: dict[str, Any], where: str) -> Self:
        """Validate `values`; on failure raise one sentence that names the key, the place and the nearest right one."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise _translate(error, cls, where) from None


def _translate(error: ValidationError, cls: type[BaseModel], where: str) -> ConfigError:
    # an unknown key goes first: it is the likely reason why a required one is missing
    first = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
    path = [str(part) for part in first["loc"] if not str(part).startswith(("function-", "literal["))]
    key = ".".join([where, *path]) if where else ".".join(path)
    if first["type"] == "extra_forbidden":
        return ConfigError(f"Unknown key '{key}'.", nearest(path[-1], _fields_at(cls, path[:-1])))
    if first["type"] == "missing":
        return ConfigError(f"The key '{key}' is required.", "Add it to the recipe or pass it with --set.")
    given = first.get("input")
    if first["type"] == "literal_error":
        expected = first.get("ctx", {}).get("expected", "")
        return ConfigError(f"'{key}' cannot be {given!r}.", f"Choose one of {expected}.")
    message = first["msg"].removeprefix("Value error, ").rstrip(".")
    if path:
        message = message[:1].lower() + message[1:]
        return ConfigError(f"'{key}' = {given!r}: {message}.")
    return ConfigError(f"{f'[{where}]: ' if where else ''}{message}.")


def _fields_at(cls: type[BaseModel], path: list[str]) -> list[str]:
    """Names that are allowed in the nested table at `path`."""
    for part in path:
        field = cls.model_fields.get(part)
        if field is None or not (isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)):
            break
        cls = field.annotation
    return list(cls.model_fields)
