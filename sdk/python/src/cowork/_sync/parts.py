# Made by tools/twin.py from _async/parts.py; change that.
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
    from collections.abc import Iterable
    from types import TracebackType

    from .client import Client
    from .events import Events
    from .pieces import Callback, Task
    from .transport import Body

Entries = list[types.FileEntry]
SecretList = list[types.Secret]
Records = list[types.Record]

PIECE = 256 * 1024

_LOG = logging.getLogger("cowork")


class Files:
    """Files of a session, from outside: ``outputs``, ``uploads``, and granted folders.

    A path starts with one of these, e.g. ``outputs/report.txt``; a path as the session sees it,
    ``/sessions/ID/mnt/outputs/report.txt``, means the same. Symbolic links are not followed.
    """

    def __init__(self, client: Client, session: str) -> None:
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

    def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        """Read a file, or a part of it."""
        request = Call("GET", self._file(path))
        if start or length is not None:
            if length == 0:
                return b""
            last = "" if length is None else str(start + length - 1)
            request.headers["Range"] = f"bytes={start}-{last}"
        return self._client.transport.call(request)

    def _file(self, name: str) -> str:
        if "/" not in self._place(name):
            raise Conflict(f"`{name}` is a folder", code="is-folder", status=409)
        return self._target(name)

    def read_text(self, path: str, encoding: str = "utf-8") -> str:
        """Read a file as text."""
        return (self.read(path)).decode(encoding)

    def open(self, path: str) -> Body:
        """Read a file as it comes: iterate, and close."""
        return self._client.transport.open(Call("GET", self._file(path)))

    def write(self, path: str, data: str | bytes | Iterable[bytes]) -> None:
        """Write a file, whole, with the folders on its way."""
        if isinstance(data, str | bytes):
            body = data.encode() if isinstance(data, str) else data
            request = Call("PUT", self._file(path), body)
        else:
            request = Call("PUT", self._file(path), upload=data)
        self._client.transport.call(request)

    def upload(self, source: types.PathName, path: str | None = None) -> None:
        """Copy a file of the host into the session: to ``uploads`` if no place is named."""
        found = Path(source).expanduser()

        def pieces() -> Iterable[bytes]:
            with found.open("rb") as file:
                while piece := file.read(PIECE):
                    yield piece

        self.write(path or f"uploads/{found.name}", pieces())

    def download(self, path: str, to: types.PathName) -> None:
        """Copy a file of the session to the host."""
        body = self.open(path)
        try:
            with Path(to).expanduser().open("wb") as file:
                for piece in body:
                    file.write(piece)
        finally:
            body.close()

    def list(self, path: str) -> Entries:
        """What is in a folder, by name."""
        return self._client.every(
            types.FileEntry, self._target(path).partition("?")[0], {"list": True, "limit": 1000}
        )

    def stat(self, path: str) -> types.FileEntry:
        """What a name is, without following a link."""
        parent, _, name = self._place(path).rpartition("/")
        if not parent:
            raise InvalidRequest(
                f"`{path}` is a folder of the session itself", code="bad-path", status=422
            )
        for entry in self.list(parent):
            if entry.name == name:
                return entry
        raise NotFound(f"there is no `{path}`", code="no-file", status=404)

    def exists(self, path: str) -> bool:
        """Whether there is such a file or folder."""
        if "/" not in self._place(path):
            try:
                self.list(path)
            except NotFound:
                return False
            return True
        try:
            self.stat(path)
        except CoworkError as error:
            if error.code in {"no-file", "no-root", "not-folder"}:
                return False
            raise
        return True

    def remove(self, path: str) -> None:
        """Remove a file or an empty folder."""
        self._client.call(type(None), "DELETE", self._file(path))


class Network:
    """What a session may reach, and what it reaches."""

    def __init__(self, client: Client, session: str) -> None:
        self._client = client
        self._path = f"/v1/sessions/{session}/network"

    def show(self) -> types.NetworkInfo:
        """Its rules, and its way out."""
        return self._client.call(types.NetworkInfo, "GET", self._path)

    def rules(self) -> list[types.NamedRule]:
        """Its rules, each with the name it is known by."""
        return (self.show()).rules

    def change(
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
        return self._client.call(types.NetworkInfo, "PATCH", self._path, body)

    def allow(self, *hosts: str | types.Rule, **details: Any) -> types.NetworkInfo:
        """Let it reach hosts, at once. Details are those of :class:`cowork.Rule`."""
        return self._add("allow", hosts, details)

    def deny(self, *hosts: str | types.Rule, **details: Any) -> types.NetworkInfo:
        """Refuse hosts, at once; ``reason`` is told to whoever is refused."""
        return self._add("deny", hosts, details)

    def ask(self, *hosts: str | types.Rule, **details: Any) -> types.NetworkInfo:
        """Let the user be asked about hosts."""
        return self._add("ask", hosts, details)

    def _add(
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
        return self.change(add=rules)

    def remove(self, *names: str) -> types.NetworkInfo:
        """Take rules and presets away, by the names that they are shown with."""
        return self.change(remove=names)

    def traffic(self) -> types.Traffic:
        """What it reaches, and what it was refused."""
        return self._client.call(types.Traffic, "GET", f"{self._path}/traffic")

    def flows(self) -> list[types.NetworkFlow]:
        """What flows now."""
        return (self.traffic()).flows

    def refused(self) -> list[types.NetworkRefusal]:
        """What it was refused, the newest first."""
        return (self.traffic()).refused

    def explain(self, url: str, method: str = "GET") -> types.NetworkExplanation:
        """Whether something would pass, and by which rule."""
        query = {"url": url, "method": method}
        return self._client.call(
            types.NetworkExplanation, "GET", f"{self._path}/explain", query=query
        )

    def publish(self, inside: int, outside: int | None = None) -> types.PublishedPort:
        """Make a port of the session reachable at the host's loopback."""
        body = present(inside=inside, outside=outside)
        return self._client.call(types.PublishedPort, "POST", f"{self._path}/ports", body)

    def unpublish(self, outside: int) -> None:
        """Let go of a published port."""
        self._client.call(type(None), "DELETE", f"{self._path}/ports/{outside}")


@dataclass(frozen=True)
class Request(types.RequestInfo):
    """Something that waits for the user's decision, and can be decided."""

    _requests: Requests = field(kw_only=True, repr=False, compare=False)

    def decide(self, decision: types.Decision, **options: Any) -> Request:
        """Answer it; options are those of ``requests.decide``."""
        return self._requests.decide(self.id, decision, **options)

    def allow_once(self, path: types.PathName | None = None, **options: Any) -> Request:
        """Yes, this once; for a folder, ``path`` is the one that is meant."""
        return self.decide("allow_once", path=path, **options)

    def allow_session(self, path: types.PathName | None = None, **options: Any) -> Request:
        """Yes, and the same again in this session."""
        return self.decide("allow_session", path=path, **options)

    def allow_always(self, path: types.PathName | None = None, **options: Any) -> Request:
        """Yes, and the same again in any session."""
        return self.decide("allow_always", path=path, **options)

    def reject_once(self, note: str | None = None) -> Request:
        """No, this once."""
        return self.decide("reject_once", note=note)

    def reject_always(self, note: str | None = None) -> Request:
        """No, and no again to the same."""
        return self.decide("reject_always", note=note)


class Subscription:
    """Requests are answered by a callback until this is closed."""

    def __init__(self, events: Events, task: Task) -> None:
        self._events = events
        self._task = task

    def close(self) -> None:
        """Answer no more."""
        self._events.close()
        self._task.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Requests:
    """What sessions ask for: of one session, or of all."""

    def __init__(self, client: Client, session: str | None) -> None:
        self._client = client
        self._session = session

    def list(
        self, state: Literal["pending", "allowed", "rejected", "expired"] | None = "pending"
    ) -> list[Request]:
        """What waits for an answer; with ``None``, all there ever was."""
        query = {"state": state, "session": self._session, "limit": 1000}
        found = self._client.every(types.RequestInfo, "/v1/requests", query)
        return [self._wrap(info) for info in found]

    def get(self, number: int) -> Request:
        """A request."""
        return self._wrap(self._client.call(types.RequestInfo, "GET", f"/v1/requests/{number}"))

    def _wrap(self, info: types.RequestInfo) -> Request:
        return Request(**vars(info), _requests=self)

    def decide(
        self,
        number: int,
        decision: types.Decision,
        *,
        path: types.PathName | None = None,
        name: str | None = None,
        access: types.Access | None = None,
        force: bool = False,
        note: str | None = None,
    ) -> Request:
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
        return self._wrap(self._client.call(types.RequestInfo, "POST", where, body))

    def subscribe(self, callback: Callback[Request, types.Decision | object]) -> Subscription:
        """Call back for each request: those that wait, and those to come.

        The callback decides, e.g. by ``request.reject_once()``, or gives a decision back as a
        text. What it leaves undecided waits for somebody else. If it fails, that is logged.
        """
        events = self._client.events(session=self._session, type="request.pending")
        events.open()
        return Subscription(events, spawn(self._answer, events, callback))

    def _answer(self, events: Events, callback: Callback[Request, types.Decision | object]) -> None:
        seen: set[int] = set()
        try:
            for request in self.list():
                seen.add(request.id)
                self._one(request, callback)
            for event in events:
                if event.type != "request.pending":
                    continue
                request = self._wrap(decode(types.RequestInfo, event.data["request"]))
                if request.id not in seen:
                    seen.add(request.id)
                    self._one(request, callback)
        except CoworkError:
            _LOG.exception("requests are no longer heard")

    def _one(self, request: Request, callback: Callback[Request, types.Decision | object]) -> None:
        try:
            decision = call(callback, request)
            if isinstance(decision, str):
                request.decide(decision)  # type: ignore[arg-type]
        except Exception:  # noqa: BLE001 - whatever a caller's function does, others are answered
            _LOG.exception("request %d could not be answered", request.id)


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
        """Records, the oldest first."""
        query = {
            "session": self._session,
            "type": type,
            "since": _moment(since),
            "until": _moment(until),
            "limit": 1000,
        }
        return self._client.every(types.Record, "/v1/audit", query)

    def verify(self) -> types.Verified:
        """Whether the record is whole: that of all sessions, which is one chain."""
        return self._client.call(types.Verified, "GET", "/v1/audit/verify")

    def export(self, format: Literal["jsonl", "csv"] = "jsonl") -> bytes:
        """Records as a file."""
        query = {"session": self._session, "format": format}
        request = Call("GET", target("/v1/audit/export", query))
        return self._client.transport.call(request)


def _moment(value: datetime | str | None) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


class Secrets:
    """Secrets that sessions use without knowing them."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def list(self) -> SecretList:
        """Every secret, without its value."""
        return decode(SecretList, self._client.call(dict, "GET", "/v1/secrets"))

    def set(
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
        return self._client.call(types.Secret, "PUT", f"/v1/secrets/{segment(name)}", body)

    def remove(self, name: str) -> None:
        """Forget a secret."""
        self._client.call(type(None), "DELETE", f"/v1/secrets/{segment(name)}")
