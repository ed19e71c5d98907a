# Made by tools/twin.py from _async/client.py; change that.
"""One daemon: its sessions, its requests, its record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, TypeVar

from .. import _places, types
from .._json import decode
from .._wire import KEY, Call, Method, decoded, segment, target
from .changes import Changed
from .events import Events
from .network import Secrets
from .pieces import opening
from .records import Audit
from .requests import Requests
from .transport import Transport

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from types import TracebackType

    from .session import Session

T = TypeVar("T")


class Client:
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
        self.transport = Transport(_places.place(runtime, program, start=start))
        self.requests = Requests(self, None)
        """What sessions ask for."""
        self.audit = Audit(self, None)
        """The record of it all."""
        self.secrets = Secrets(self)
        """Secrets that sessions use without knowing them."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the daemon. Sessions go on."""
        self.transport.close()

    def call(
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
        answer = self.transport.call(request)
        if kind is type(None) or not answer:
            return None  # type: ignore[return-value]
        value: Any = decoded(answer)
        return value if kind in {dict, list, object} else decode(kind, value)

    def every(self, kind: type[T], path: str, query: Mapping[str, object]) -> list[T]:
        """Everything in a list, part by part."""
        items: list[T] = []
        cursor: str | None = None
        while True:
            page: dict[str, Any] = self.call(dict, "GET", path, query={**query, "cursor": cursor})
            items.extend(decode(kind, item) for item in page["items"])
            following = page.get("next")
            # A place that leads to itself would never end.
            if following is None or following == cursor:
                return items
            cursor = following

    def info(self) -> types.Info:
        """Who answers."""
        return self.call(types.Info, "GET", "/v1/info")

    def doctor(self) -> list[types.Fact]:
        """What the host offers to sessions, and how to get the rest."""
        return decode(list[types.Fact], self.call(list, "GET", "/v1/doctor"))

    def openapi(self) -> dict[str, Any]:
        """The description of the daemon's API."""
        return self.call(dict, "GET", "/v1/openapi.json")

    def presets(self) -> list[types.Preset]:
        """Lists of hosts that belong together."""
        return decode(list[types.Preset], self.call(list, "GET", "/v1/presets"))

    def agents(self) -> list[types.AgentInfo]:
        """Agents that can be asked in sessions."""
        return decode(list[types.AgentInfo], self.call(object, "GET", "/v1/agents"))

    def rules(self) -> list[types.NamedRule]:
        """Rules for every session with a network."""
        return self.every(types.NamedRule, "/v1/rules", {"limit": 1000})

    def remove_rule(self, name: str) -> None:
        """Take away a rule for every session."""
        self.call(type(None), "DELETE", f"/v1/rules/{segment(name)}")

    def list_sessions(
        self, *, state: str | None = None, label: str | None = None
    ) -> list[types.SessionInfo]:
        """Sessions that are not removed."""
        query = {"state": state, "label": label, "limit": 1000}
        return self.every(types.SessionInfo, "/v1/sessions", query)

    @opening
    def connect(self, id: str) -> Session:
        """A session that is there. Leaving it as a context does not end it."""
        from .session import Session

        info = self.call(types.SessionInfo, "GET", f"/v1/sessions/{segment(id)}")
        return Session(self, info)

    def history(self, path: types.PathName | None = None) -> types.History:
        """Sessions that changed something, gone ones too: anywhere, or below a path."""
        query = {"path": None if path is None else types.host_path(path)}
        return self.call(types.History, "GET", "/v1/history", query=query)

    def changed(self, id: str) -> Changed:
        """What a session changed, also of one that is gone."""
        return Changed(self, id)

    def events(
        self,
        *,
        session: str | None = None,
        type: str | None = None,
        after: int | None = None,
    ) -> Events:
        """What happens, one after the other; after event number ``after``, else from now on.

        A connection that breaks is made again where it broke: none is lost, none comes twice.
        """
        return Events(self.transport, session=session, type=type, after=after)

    def shutdown(self) -> None:
        """Stop every session, and let the daemon leave."""
        self.call(type(None), "POST", "/v1/shutdown")
