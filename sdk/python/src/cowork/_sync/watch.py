# Made by tools/twin.py from _async/watch.py; change that.
"""Changes in a session's folders as they happen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from .. import types
from .._json import decode
from .._wire import Call, EventLines
from ..errors import ConnectionLost, CoworkError

if TYPE_CHECKING:
    from types import TracebackType

    from .transport import Body, Transport


class Watch:
    """Changes in a folder, one after the other, until the session, the grant or the folder ends.

    ``reason`` says then which. ``unwatched`` has folders in which changes are not seen, and why.
    Changes that came faster than they were taken are an error: list the folder, and watch again.
    """

    def __init__(self, transport: Transport, target: str) -> None:
        self.reason: str | None = None
        self.unwatched: dict[str, str] = {}
        self._transport = transport
        self._target = target
        self._body: Body | None = None
        self._lines = EventLines()
        self._closed = False

    def open(self) -> Self:
        """Start to watch now: from here on nothing is missed."""
        if self._body is None and not self._closed:
            self._body = self._transport.open(Call("GET", self._target))
            self._next()
        return self

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> types.FileChange:
        self.open()
        while (found := self._next()) is not None:
            name, data = found
            if name == "change":
                return decode(types.FileChange, data)
            if name == "overflow":
                raise CoworkError("changes were lost", code="overflow", hint="list the folder")
            if isinstance(data, dict) and name == "unwatched":
                self.unwatched[str(data["path"])] = str(data["reason"])
            if isinstance(data, dict) and name == "end":
                self.reason = str(data["reason"])
                break
        self.close()
        raise StopIteration

    def _next(self) -> tuple[str, object] | None:
        """What is told next, or none after the end."""
        while self._body is not None:
            if (found := self._lines.next()) is not None:
                return found
            data = self._body.read()
            if not data:
                raise ConnectionLost("the stream of changes broke off")
            self._lines.feed(data)
        return None

    def close(self) -> None:
        """Stop watching."""
        self._closed = True
        body, self._body = self._body, None
        if body is not None:
            body.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
