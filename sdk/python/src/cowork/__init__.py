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
from ._async.process import AsyncProcess
from ._async.requests import AsyncRequest, AsyncSubscription
from ._async.session import AsyncSession
from ._async.tasks import AsyncTask
from ._sync.client import Client
from ._sync.events import Events
from ._sync.process import Process
from ._sync.requests import Request, Subscription
from ._sync.session import Session
from ._sync.tasks import Task
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
    TaskFailed,
)
from .types import (
    Agent,
    Answer,
    Caps,
    Event,
    Grant,
    Guards,
    Limits,
    Network,
    Output,
    OwnSecret,
    ParentProxy,
    PlaceName,
    Quota,
    Result,
    Rule,
    SessionInfo,
    Size,
    TaskMessage,
    View,
    Writes,
)

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "Answer",
    "ApiError",
    "AsyncClient",
    "AsyncEvents",
    "AsyncProcess",
    "AsyncRequest",
    "AsyncSession",
    "AsyncSubscription",
    "AsyncTask",
    "Caps",
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
    "Guards",
    "HostError",
    "InvalidRequest",
    "Limits",
    "Network",
    "NotFound",
    "Output",
    "OwnSecret",
    "ParentProxy",
    "PlaceName",
    "Process",
    "ProtocolError",
    "Quota",
    "Request",
    "Result",
    "Rule",
    "Session",
    "SessionInfo",
    "Size",
    "Subscription",
    "Task",
    "TaskFailed",
    "TaskMessage",
    "View",
    "Writes",
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
