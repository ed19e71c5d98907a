"""Everything that can go wrong, as exceptions.

Each has a stable ``code`` for programs, a sentence for people, and where something can be done
about it a ``hint``. What the daemon refuses is an :class:`ApiError` with the HTTP ``status``; the
others have none.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .types import Answer, Result


class CoworkError(Exception):
    """Something went wrong."""

    code: str
    hint: str | None
    status: int | None
    detail: str | None

    def __init__(
        self,
        sentence: str,
        *,
        code: str = "failed",
        hint: str | None = None,
        status: int | None = None,
        detail: str | None = None,
    ) -> None:
        self.sentence = sentence
        self.code = code
        self.hint = hint
        self.status = status
        self.detail = detail
        super().__init__(sentence)

    def __str__(self) -> str:
        text = self.sentence
        if self.detail:
            text += f": {self.detail}"
        if self.hint:
            text += f" (hint: {self.hint})"
        return text


class DaemonUnavailable(CoworkError):
    """No daemon answers, and none could be started."""


class ConnectionLost(CoworkError):
    """The connection broke off. Whether the request had an effect is not known."""


class ProtocolError(CoworkError):
    """What came is not what was agreed on."""


class ApiError(CoworkError):
    """The daemon says no, with its reason (RFC 9457)."""

    status: int


class InvalidRequest(ApiError):
    """The request does not make sense, or cannot be carried out (400, 413, 415, 416, 422, 426)."""


class Forbidden(ApiError):
    """It is not allowed (401, 403)."""


class NotFound(ApiError):
    """There is no such thing (404, 405)."""


class Conflict(ApiError):
    """It does not fit the state that things are in (409)."""


class HostError(ApiError):
    """Something on the host stands in the way (5xx)."""


class CommandFailed(CoworkError):
    """A command that was to succeed did not."""

    def __init__(self, sentence: str, result: Result, *, code: str = "command-failed") -> None:
        super().__init__(sentence, code=code)
        self.result = result


class CommandTimeout(CommandFailed):
    """A command's time was over."""

    def __init__(self, sentence: str, result: Result) -> None:
        super().__init__(sentence, result, code="timeout")


class TaskFailed(CoworkError):
    """An agent was asked something and has not answered."""

    def __init__(self, sentence: str, result: Answer, *, code: str) -> None:
        super().__init__(sentence, code=code)
        self.result = result


def _kind(status: int) -> type[ApiError]:
    if status >= 500:
        return HostError
    known: dict[int, type[ApiError]] = {
        401: Forbidden,
        403: Forbidden,
        404: NotFound,
        405: NotFound,
        409: Conflict,
    }
    return known.get(status, InvalidRequest)


def from_answer(status: int, body: bytes) -> ApiError:
    """Make the exception that an answer with a problem stands for."""
    try:
        problem = json.loads(body)
    except ValueError:
        problem = None
    if not isinstance(problem, dict):
        detail = body.decode(errors="replace").strip() or None
        sentence = f"the daemon answered with status {status}"
        return _kind(status)(sentence, code="unknown", status=status, detail=detail)

    def text(name: str) -> str | None:
        value = problem.get(name)
        return value if isinstance(value, str) else None

    return _kind(status)(
        text("title") or f"the daemon answered with status {status}",
        code=text("code") or "unknown",
        status=status,
        detail=text("detail"),
        hint=text("hint"),
    )
