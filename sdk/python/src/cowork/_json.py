"""From the daemon's JSON to dataclasses, and back.

Fields that are not known are left out: answers may grow. Bytes that are not UTF-8 come as
``{"base64": …}`` and are strings with surrogates here, as everywhere in Python where a path is
meant (PEP 383).
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import os
import types
import typing
from datetime import datetime
from typing import Any, TypeVar, cast

from .errors import ProtocolError

if typing.TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def decode(kind: type[T], value: object) -> T:
    """Read a value of a type."""
    try:
        return cast("T", _decoder(cast("Any", kind))(value))
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        name = getattr(kind, "__name__", str(kind))
        raise ProtocolError(
            f"an answer is not a {name}",
            code="garbled",
            detail=str(error),
            hint="the daemon is perhaps of another version than this package",
        ) from error


@functools.cache
def _decoder(kind: Any) -> Callable[[Any], Any]:
    if kind is Any or kind is object:
        return lambda value: value
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in {typing.Union, types.UnionType}:
        inner = _decoder(next(one for one in arguments if one is not type(None)))
        return lambda value: None if value is None else inner(value)
    if origin is list:
        inner = _decoder(arguments[0])
        return lambda value: [inner(one) for one in value]
    if origin is dict:
        inner = _decoder(arguments[1])
        return lambda value: {key: inner(one) for key, one in value.items()}
    if dataclasses.is_dataclass(kind):
        return _record(cast("type[Any]", kind))
    if kind is str or origin is typing.Literal:
        # A word that is new to this version is still a word.
        return _text
    if kind is datetime:
        return datetime.fromisoformat
    if kind in {int, float, bool}:
        return cast("Callable[[Any], Any]", kind)
    raise TypeError(f"{kind} is no type of an answer")


def _record(kind: type[Any]) -> Callable[[Any], Any]:
    hints = typing.get_type_hints(kind)
    fields = [
        (one.name, one.name.rstrip("_"), _decoder(hints[one.name]))
        for one in dataclasses.fields(kind)
        if one.init and not one.name.startswith("_")
    ]

    def read(value: Any) -> Any:
        return kind(**{name: inner(value[key]) for name, key, inner in fields if key in value})

    return read


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return os.fsdecode(base64.b64decode(value["base64"], validate=True))


def raw(value: str | bytes | os.PathLike[str] | os.PathLike[bytes]) -> str | dict[str, str]:
    """Say some bytes as text, or in base64 where they are none."""
    data = os.fsencode(value)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def plain(value: Any) -> Any:
    """Say a dataclass as the daemon reads it, without what is ``None``."""
    if dataclasses.is_dataclass(value):
        names = [one.name for one in dataclasses.fields(value)]
        found = {name.rstrip("_"): plain(getattr(value, name)) for name in names}
        return {name: one for name, one in found.items() if one is not None}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return raw(value) if isinstance(value, str) else value


def present(**fields: object) -> dict[str, object]:
    """The fields that are not ``None``."""
    return {name: value for name, value in fields.items() if value is not None}
