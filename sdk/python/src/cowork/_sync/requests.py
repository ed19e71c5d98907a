# Made by tools/twin.py from _async/requests.py; change that.
"""What sessions ask for, and who answers."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from .. import types
from .._json import decode, present, raw
from ..errors import CoworkError, InvalidRequest
from .pieces import call, spawn

if TYPE_CHECKING:
    from types import TracebackType

    from .client import Client
    from .events import Events
    from .pieces import Callback, Task

_LOG = logging.getLogger("cowork")


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

    def list(self, state: types.RequestState | None = "pending") -> list[Request]:
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

    def ask(
        self,
        wanted: str,
        reason: str,
        *,
        access: types.Access = "ro",
        path: types.PathName | None = None,
        wait: int = 0,
    ) -> types.Asked:
        """Ask the user for a folder on a session's behalf, and wait up to so many seconds.

        It is what a program in the session does at ``$COWORK_REQUESTS``. ``path`` is where the
        folder probably lies; the user may choose another one.
        """
        body = present(
            wanted=wanted,
            reason=reason,
            access=access,
            path=None if path is None else raw(types.host_path(path)),
            wait=wait,
        )
        return self._client.call(types.Asked, "POST", self._own(), body)

    def asked(self, number: int, *, wait: int = 0) -> types.Asked:
        """What became of a folder that was asked for; waits up to so many seconds."""
        where = f"{self._own()}/{number}"
        return self._client.call(types.Asked, "GET", where, query={"wait": wait})

    def _own(self) -> str:
        if self._session is None:
            raise InvalidRequest(
                "a folder is asked for on behalf of a session", code="no-session", status=422
            )
        return f"/v1/sessions/{self._session}/requests"

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
