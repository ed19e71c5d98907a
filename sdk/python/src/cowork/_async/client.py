"""One daemon: its sessions, its requests, its record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, TypeVar

from .. import _places, types
from .._json import decode
from .._wire import KEY, Call, Method, decoded, segment, target
from .changes import AsyncChanged
from .events import AsyncEvents
from .network import AsyncSecrets
from .pieces import opening
from .records import AsyncAudit
from .requests import AsyncRequests
from .transport import AsyncTransport

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from types import TracebackType

    from .session import AsyncSession

T = TypeVar("T")


class AsyncClient:
    """Speaks to the daemon of this user, which is started at the first call if it does not run.

    ``runtime`` is the folder with its socket, in place of the usual one. ``program`` is what it
    is started with: ``cowork``, or a folder that has it; else ``COWORK_BIN``, else what is on
    ``PATH``. With ``start=False`` nothing is started.
    """

    def __init__(
        self,
        *,
        runtime: str | os.PathLike[str] | None = None,
        program: str | os.PathLike[str] | None = None,
        start: bool = True,
    ) -> None:
        self.transport = AsyncTransport(_places.place(runtime, program, start=start))
        self.requests = AsyncRequests(self, None)
        """What sessions ask for."""
        self.audit = AsyncAudit(self, None)
        """The record of it all."""
        self.secrets = AsyncSecrets(self)
        """Secrets that sessions use without knowing them."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Let go of the daemon. Sessions go on."""
        await self.transport.aclose()

    async def call(
        self,
        kind: type[T],
        method: Method,
        path: str,
        body: object = None,
        query: Mapping[str, object] | None = None,
        *,
        key: str | None = None,
    ) -> T:
        """Ask the daemon for anything: any path of its OpenAPI document.

        ``path`` is escaped already. The answer is read as ``kind``: a class of
        :mod:`cowork.types`, ``dict``, ``list``, or ``type(None)`` if there is none. A ``POST``
        with a ``key`` is carried out once, and repeated if its connection breaks.
        """
        where = target(path, query)
        request = Call(method, where) if body is None else Call.json(method, where, body)
        if key is not None:
            request.headers[KEY] = key
        answer = await self.transport.call(request)
        if kind is type(None) or not answer:
            return None  # type: ignore[return-value]
        value: Any = decoded(answer)
        return value if kind in {dict, list, object} else decode(kind, value)

    async def every(self, kind: type[T], path: str, query: Mapping[str, object]) -> list[T]:
        """Everything in a list, part by part."""
        items: list[T] = []
        cursor: str | None = None
        while True:
            page: dict[str, Any] = await self.call(
                dict, "GET", path, query={**query, "cursor": cursor}
            )
            items.extend(decode(kind, item) for item in page["items"])
            following = page.get("next")
            # A place that leads to itself would never end.
            if following is None or following == cursor:
                return items
            cursor = following

    async def info(self) -> types.Info:
        """Who answers."""
        return await self.call(types.Info, "GET", "/v1/info")

    async def doctor(self) -> list[types.Fact]:
        """What the host offers to sessions, and how to get the rest."""
        return decode(list[types.Fact], await self.call(list, "GET", "/v1/doctor"))

    async def openapi(self) -> dict[str, Any]:
        """The description of the daemon's API."""
        return await self.call(dict, "GET", "/v1/openapi.json")

    async def presets(self) -> list[types.Preset]:
        """Lists of hosts that belong together."""
        return decode(list[types.Preset], await self.call(list, "GET", "/v1/presets"))

    async def agents(self) -> list[types.AgentInfo]:
        """Agents that can be asked in sessions."""
        return decode(list[types.AgentInfo], await self.call(object, "GET", "/v1/agents"))

    async def rules(self) -> list[types.NamedRule]:
        """Rules for every session with a network."""
        return await self.every(types.NamedRule, "/v1/rules", {"limit": 1000})

    async def remove_rule(self, name: str) -> None:
        """Take away a rule for every session."""
        await self.call(type(None), "DELETE", f"/v1/rules/{segment(name)}")

    async def list_sessions(
        self, *, state: str | None = None, label: str | None = None
    ) -> list[types.SessionInfo]:
        """Sessions that are not removed."""
        query = {"state": state, "label": label, "limit": 1000}
        return await self.every(types.SessionInfo, "/v1/sessions", query)

    @opening
    async def connect(self, id: str) -> AsyncSession:
        """A session that is there. Leaving it as a context does not end it."""
        from .session import AsyncSession

        info = await self.call(types.SessionInfo, "GET", f"/v1/sessions/{segment(id)}")
        return AsyncSession(self, info)

    async def history(self, path: types.PathName | None = None) -> types.History:
        """Sessions that changed something, gone ones too: anywhere, or below a path."""
        query = {"path": None if path is None else types.host_path(path)}
        return await self.call(types.History, "GET", "/v1/history", query=query)

    def changed(self, id: str) -> AsyncChanged:
        """What a session changed, also of one that is gone."""
        return AsyncChanged(self, id)

    def events(
        self,
        *,
        session: str | None = None,
        type: str | None = None,
        after: int | None = None,
    ) -> AsyncEvents:
        """What happens, one after the other; after event number ``after``, else from now on.

        A connection that breaks is made again where it broke: none is lost, none comes twice.
        """
        return AsyncEvents(self.transport, session=session, type=type, after=after)

    async def shutdown(self) -> None:
        """Stop every session, and let the daemon leave."""
        await self.call(type(None), "POST", "/v1/shutdown")
