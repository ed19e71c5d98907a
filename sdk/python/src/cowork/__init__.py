"""Sessions for agents on Linux: a computer of their own inside yours.

>>> from cowork import Grant, Session
>>> with Session.create(folders=[Grant("~/reports", mode="ro")], network=["pypi.org"]) as session:
...     result = session.run("wc -l mnt/reports/*", stream=print)
...     result.exit_code
"""

from __future__ import annotations

from . import errors, types
from ._async.client import AsyncClient
from ._async.events import AsyncEvents
from ._async.parts import AsyncRequest, AsyncSubscription
from ._async.process import AsyncProcess
from ._async.session import AsyncSession
from ._sync.client import Client
from ._sync.events import Events
from ._sync.parts import Request, Subscription
from ._sync.process import Process
from ._sync.session import Session
from .errors import (
    ApiError,
    CommandFailed,
    CommandTimeout,
    Conflict,
    ConnectionLost,
    CoworkError,
    DaemonUnavailable,
    Forbidden,
    HostError,
    InvalidRequest,
    NotFound,
    ProtocolError,
    Unsupported,
)
from .types import Event, Grant, Limits, Network, Output, Result, Rule, SessionInfo, Size

__version__ = "0.1.0"

__all__ = [
    "ApiError",
    "AsyncClient",
    "AsyncEvents",
    "AsyncProcess",
    "AsyncRequest",
    "AsyncSession",
    "AsyncSubscription",
    "Client",
    "CommandFailed",
    "CommandTimeout",
    "Conflict",
    "ConnectionLost",
    "CoworkError",
    "DaemonUnavailable",
    "Event",
    "Events",
    "Forbidden",
    "Grant",
    "HostError",
    "InvalidRequest",
    "Limits",
    "Network",
    "NotFound",
    "Output",
    "Process",
    "ProtocolError",
    "Request",
    "Result",
    "Rule",
    "Session",
    "SessionInfo",
    "Size",
    "Subscription",
    "Unsupported",
    "connect",
    "doctor",
    "errors",
    "list_sessions",
    "types",
]


def connect(id: str) -> Session:
    """A session that is there. Leaving it as a context does not end it."""
    return Session.connect(id)


def list_sessions(*, state: str | None = None, label: str | None = None) -> list[SessionInfo]:
    """Sessions that are not removed."""
    with Client() as client:
        return client.list_sessions(state=state, label=label)


def doctor() -> list[types.Fact]:
    """What the host offers to sessions, and how to get the rest."""
    with Client() as client:
        return client.doctor()
