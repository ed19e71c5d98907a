# Made by tools/twin.py from _async/records.py; change that.
"""The record of everything that was decided and done."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from .. import types
from .._wire import Call, target

if TYPE_CHECKING:
    from .client import Client

Records = list[types.Record]


class Audit:
    """The record of everything that was decided and done: of one session, or of all."""

    def __init__(self, client: Client, session: str | None) -> None:
        self._client = client
        self._session = session

    def list(
        self,
        *,
        type: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
    ) -> Records:
        """Records, the oldest first: of one type, of a span of time."""
        query = {**self._query(type, since, until), "limit": 1000}
        return self._client.every(types.Record, "/v1/audit", query)

    def verify(self) -> types.Verified:
        """Whether the record is whole: that of all sessions, which is one chain."""
        return self._client.call(types.Verified, "GET", "/v1/audit/verify")

    def export(
        self,
        format: Literal["jsonl", "csv"] = "jsonl",
        *,
        type: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
    ) -> bytes:
        """Records as a file."""
        query = {**self._query(type, since, until), "format": format}
        request = Call("GET", target("/v1/audit/export", query))
        return self._client.transport.call(request)

    def _query(
        self, type: str | None, since: datetime | str | None, until: datetime | str | None
    ) -> dict[str, object]:
        moments = {"since": _moment(since), "until": _moment(until)}
        return {"session": self._session, "type": type, **moments}


def _moment(value: datetime | str | None) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
