"""Parts of a session and of the daemon: files, network, requests, record, secrets."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from .. import types
from .._json import decode, present, raw
from .._wire import Call, path, segment, target
from ..errors import Conflict, CoworkError, InvalidRequest, NotFound
from .pieces import call, spawn

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Iterable
    from types import TracebackType

    from .client import AsyncClient
    from .events import AsyncEvents
    from .pieces import Callback, Task
    from .transport import AsyncBody

Entries = list[types.FileEntry]
SecretList = list[types.Secret]
Records = list[types.Record]

PIECE = 256 * 1024

_LOG = logging.getLogger("cowork")


class AsyncFiles:
    """Files of a session, from outside: ``outputs``, ``uploads``, and granted folders.

    A path starts with one of these, e.g. ``outputs/report.txt``; a path as the session sees it,
    ``/sessions/ID/mnt/outputs/report.txt``, means the same. Symbolic links are not followed.
    """

    def __init__(self, client: AsyncClient, session: str) -> None:
        self._client = client
        self._session = session

    def _place(self, name: str) -> str:
        """The path below ``mnt``, without slashes at its ends."""
        inside = f"/sessions/{self._session}/mnt/"
        place = name.removeprefix(inside).strip("/")
        if not place or (name.startswith("/") and not name.startswith(inside)):
            raise InvalidRequest(
                f"`{name}` is not in a folder of the session",
                code="bad-path",
                status=422,
                hint="it starts with outputs, uploads, or the name of a granted folder",
            )
        return place

    def _target(self, name: str, **query: object) -> str:
        return target(f"/v1/sessions/{self._session}/files/{path(self._place(name))}", query)

    async def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        """Read a file, or a part of it."""
        request = Call("GET", self._file(path))
        if start or length is not None:
            if length == 0:
                return b""
            last = "" if length is None else str(start + length - 1)
            request.headers["Range"] = f"bytes={start}-{last}"
        return await self._client.transport.call(request)

    def _file(self, name: str) -> str:
        if "/" not in self._place(name):
            raise Conflict(f"`{name}` is a folder", code="is-folder", status=409)
        return self._target(name)

    async def read_text(self, path: str, encoding: str = "utf-8") -> str:
        """Read a file as text."""
        return (await self.read(path)).decode(encoding)

    async def open(self, path: str) -> AsyncBody:
        """Read a file as it comes: iterate, and close."""
        return await self._client.transport.open(Call("GET", self._file(path)))

    async def write(
        self, path: str, data: str | bytes | Iterable[bytes] | AsyncIterable[bytes]
    ) -> None:
        """Write a file, whole, with the folders on its way."""
        if isinstance(data, str | bytes):
            body = data.encode() if isinstance(data, str) else data
            request = Call("PUT", self._file(path), body)
        else:
            request = Call("PUT", self._file(path), upload=data)
        await self._client.transport.call(request)

    async def upload(self, source: types.PathName, path: str | None = None) -> None:
        """Copy a file of the host into the session: to ``uploads`` if no place is named."""
        found = Path(source).expanduser()

        def pieces() -> Iterable[bytes]:
            with found.open("rb") as file:
                while piece := file.read(PIECE):
                    yield piece

        await self.write(path or f"uploads/{found.name}", pieces())

    async def download(self, path: str, to: types.PathName) -> None:
        """Copy a file of the session to the host."""
        body = await self.open(path)
        try:
            with Path(to).expanduser().open("wb") as file:
                async for piece in body:
                    file.write(piece)
        finally:
            await body.aclose()

    async def list(self, path: str) -> Entries:
        """What is in a folder, by name."""
        return await self._client.every(
            types.FileEntry, self._target(path).partition("?")[0], {"list": True, "limit": 1000}
        )

    async def stat(self, path: str) -> types.FileEntry:
        """What a name is, without following a link."""
        parent, _, name = self._place(path).rpartition("/")
        if not parent:
            raise InvalidRequest(
                f"`{path}` is a folder of the session itself", code="bad-path", status=422
            )
        for entry in await self.list(parent):
            if entry.name == name:
                return entry
        raise NotFound(f"there is no `{path}`", code="no-file", status=404)

    async def exists(self, path: str) -> bool:
        """Whether there is such a file or folder."""
        if "/" not in self._place(path):
            try:
                await self.list(path)
            except NotFound:
                return False
            return True
        try:
            await self.stat(path)
        except CoworkError as error:
            if error.code in {"no-file", "no-root", "not-folder"}:
                return False
            raise
        return True

    async def remove(self, path: str) -> None:
        """Remove a file or an empty folder."""
        await self._client.call(type(None), "DELETE", self._file(path))


class AsyncNetwork:
    """What a session may reach, and what it reaches."""

    def __init__(self, client: AsyncClient, session: str) -> None:
        self._client = client
        self._path = f"/v1/sessions/{session}/network"

    async def show(self) -> types.NetworkInfo:
        """Its rules, and its way out."""
        return await self._client.call(types.NetworkInfo, "GET", self._path)

    async def rules(self) -> list[types.NamedRule]:
        """Its rules, each with the name it is known by."""
        return (await self.show()).rules

    async def change(
        self,
        *,
        add: Iterable[str | types.Rule] = (),
        remove: Iterable[str] = (),
        presets: Iterable[str] = (),
        secrets: Iterable[str] = (),
        otherwise: Literal["deny", "ask"] | None = None,
    ) -> types.NetworkInfo:
        """Change several things at once, while it runs."""
        body = present(
            add=[types.as_rule(rule).body() for rule in add],
            remove=list(remove),
            presets=list(presets),
            secrets=list(secrets),
            otherwise=otherwise,
        )
        return await self._client.call(types.NetworkInfo, "PATCH", self._path, body)

    async def allow(self, *hosts: str | types.Rule, **details: Any) -> types.NetworkInfo:
        """Let it reach hosts, at once. Details are those of :class:`cowork.Rule`."""
        return await self._add("allow", hosts, details)

    async def deny(self, *hosts: str | types.Rule, **details: Any) -> types.NetworkInfo:
        """Refuse hosts, at once; ``reason`` is told to whoever is refused."""
        return await self._add("deny", hosts, details)

    async def ask(self, *hosts: str | types.Rule, **details: Any) -> types.NetworkInfo:
        """Let the user be asked about hosts."""
        return await self._add("ask", hosts, details)

    async def _add(
        self,
        action: Literal["allow", "ask", "deny"],
        hosts: Iterable[str | types.Rule],
        details: dict[str, Any],
    ) -> types.NetworkInfo:
        rules = [
            types.Rule(host, action, **details)
            if isinstance(host, str)
            else types.Rule(**{**vars(host), **details, "action": action})
            for host in hosts
        ]
        return await self.change(add=rules)

    async def remove(self, *names: str) -> types.NetworkInfo:
        """Take rules and presets away, by the names that they are shown with."""
        return await self.change(remove=names)

    async def traffic(self) -> types.Traffic:
        """What it reaches, and what it was refused."""
        return await self._client.call(types.Traffic, "GET", f"{self._path}/traffic")

    async def flows(self) -> list[types.NetworkFlow]:
        """What flows now."""
        return (await self.traffic()).flows

    async def refused(self) -> list[types.NetworkRefusal]:
        """What it was refused, the newest first."""
        return (await self.traffic()).refused

    async def explain(self, url: str, method: str = "GET") -> types.NetworkExplanation:
        """Whether something would pass, and by which rule."""
        query = {"url": url, "method": method}
        return await self._client.call(
            types.NetworkExplanation, "GET", f"{self._path}/explain", query=query
        )

    async def publish(self, inside: int, outside: int | None = None) -> types.PublishedPort:
        """Make a port of the session reachable at the host's loopback."""
        body = present(inside=inside, outside=outside)
        return await self._client.call(types.PublishedPort, "POST", f"{self._path}/ports", body)

    async def unpublish(self, outside: int) -> None:
        """Let go of a published port."""
        await self._client.call(type(None), "DELETE", f"{self._path}/ports/{outside}")


@dataclass(frozen=True)
class AsyncRequest(types.RequestInfo):
    """Something that waits for the user's decision, and can be decided."""

    _requests: AsyncRequests = field(kw_only=True, repr=False, compare=False)

    async def decide(self, decision: types.Decision, **options: Any) -> AsyncRequest:
        """Answer it; options are those of ``requests.decide``."""
        return await self._requests.decide(self.id, decision, **options)

    async def allow_once(self, path: types.PathName | None = None, **options: Any) -> AsyncRequest:
        """Yes, this once; for a folder, ``path`` is the one that is meant."""
        return await self.decide("allow_once", path=path, **options)

    async def allow_session(
        self, path: types.PathName | None = None, **options: Any
    ) -> AsyncRequest:
        """Yes, and the same again in this session."""
        return await self.decide("allow_session", path=path, **options)

    async def allow_always(
        self, path: types.PathName | None = None, **options: Any
    ) -> AsyncRequest:
        """Yes, and the same again in any session."""
        return await self.decide("allow_always", path=path, **options)

    async def reject_once(self, note: str | None = None) -> AsyncRequest:
        """No, this once."""
        return await self.decide("reject_once", note=note)

    async def reject_always(self, note: str | None = None) -> AsyncRequest:
        """No, and no again to the same."""
        return await self.decide("reject_always", note=note)


class AsyncSubscription:
    """Requests are answered by a callback until this is closed."""

    def __init__(self, events: AsyncEvents, task: Task) -> None:
        self._events = events
        self._task = task

    async def aclose(self) -> None:
        """Answer no more."""
        await self._events.aclose()
        await self._task.stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


class AsyncRequests:
    """What sessions ask for: of one session, or of all."""

    def __init__(self, client: AsyncClient, session: str | None) -> None:
        self._client = client
        self._session = session

    async def list(
        self, state: Literal["pending", "allowed", "rejected", "expired"] | None = "pending"
    ) -> list[AsyncRequest]:
        """What waits for an answer; with ``None``, all there ever was."""
        query = {"state": state, "session": self._session, "limit": 1000}
        found = await self._client.every(types.RequestInfo, "/v1/requests", query)
        return [self._wrap(info) for info in found]

    async def get(self, number: int) -> AsyncRequest:
        """A request."""
        return self._wrap(
            await self._client.call(types.RequestInfo, "GET", f"/v1/requests/{number}")
        )

    def _wrap(self, info: types.RequestInfo) -> AsyncRequest:
        return AsyncRequest(**vars(info), _requests=self)

    async def decide(
        self,
        number: int,
        decision: types.Decision,
        *,
        path: types.PathName | None = None,
        name: str | None = None,
        access: types.Access | None = None,
        force: bool = False,
        note: str | None = None,
    ) -> AsyncRequest:
        """Answer a request. ``path`` is the folder that is meant, needed to say yes to one."""
        body = present(
            decision=decision,
            path=None if path is None else raw(types.host_path(path)),
            name=name,
            access=access,
            force=force or None,
            note=note,
        )
        where = f"/v1/requests/{number}/decide"
        return self._wrap(await self._client.call(types.RequestInfo, "POST", where, body))

    async def subscribe(
        self, callback: Callback[AsyncRequest, types.Decision | object]
    ) -> AsyncSubscription:
        """Call back for each request: those that wait, and those to come.

        The callback decides, e.g. by ``request.reject_once()``, or gives a decision back as a
        text. What it leaves undecided waits for somebody else. If it fails, that is logged.
        """
        events = self._client.events(session=self._session, type="request.pending")
        await events.open()
        return AsyncSubscription(events, spawn(self._answer, events, callback))

    async def _answer(
        self, events: AsyncEvents, callback: Callback[AsyncRequest, types.Decision | object]
    ) -> None:
        seen: set[int] = set()
        try:
            for request in await self.list():
                seen.add(request.id)
                await self._one(request, callback)
            async for event in events:
                if event.type != "request.pending":
                    continue
                request = self._wrap(decode(types.RequestInfo, event.data["request"]))
                if request.id not in seen:
                    seen.add(request.id)
                    await self._one(request, callback)
        except CoworkError:
            _LOG.exception("requests are no longer heard")

    async def _one(
        self, request: AsyncRequest, callback: Callback[AsyncRequest, types.Decision | object]
    ) -> None:
        try:
            decision = await call(callback, request)
            if isinstance(decision, str):
                await request.decide(decision)  # type: ignore[arg-type]
        except Exception:  # noqa: BLE001 - whatever a caller's function does, others are answered
            _LOG.exception("request %d could not be answered", request.id)


class AsyncAudit:
    """The record of everything that was decided and done: of one session, or of all."""

    def __init__(self, client: AsyncClient, session: str | None) -> None:
        self._client = client
        self._session = session

    async def list(
        self,
        *,
        type: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
    ) -> Records:
        """Records, the oldest first."""
        query = {
            "session": self._session,
            "type": type,
            "since": _moment(since),
            "until": _moment(until),
            "limit": 1000,
        }
        return await self._client.every(types.Record, "/v1/audit", query)

    async def verify(self) -> types.Verified:
        """Whether the record is whole: that of all sessions, which is one chain."""
        return await self._client.call(types.Verified, "GET", "/v1/audit/verify")

    async def export(self, format: Literal["jsonl", "csv"] = "jsonl") -> bytes:
        """Records as a file."""
        query = {"session": self._session, "format": format}
        request = Call("GET", target("/v1/audit/export", query))
        return await self._client.transport.call(request)


def _moment(value: datetime | str | None) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


class AsyncSecrets:
    """Secrets that sessions use without knowing them."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def list(self) -> SecretList:
        """Every secret, without its value."""
        return decode(SecretList, await self._client.call(dict, "GET", "/v1/secrets"))

    async def set(
        self,
        name: str,
        value: str,
        *,
        hosts: Iterable[str] = (),
        mode: Literal["swap", "inject", "pin"] | None = None,
        carrier: str | None = None,
        variable: str | None = None,
    ) -> types.Secret:
        """Keep a secret. ``variable`` of a session's commands then holds a placeholder."""
        body = present(
            value=value, hosts=list(hosts), mode=mode, carrier=carrier, variable=variable
        )
        return await self._client.call(types.Secret, "PUT", f"/v1/secrets/{segment(name)}", body)

    async def remove(self, name: str) -> None:
        """Forget a secret."""
        await self._client.call(type(None), "DELETE", f"/v1/secrets/{segment(name)}")
