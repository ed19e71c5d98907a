# Made by tools/answers.py from docs/openapi.json; change that.
"""What sessions ask for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from .folders import Access

__all__ = ["Asked", "Asker", "Decision", "RequestInfo", "RequestState"]


@dataclass(frozen=True)
class Asker:
    """A program in a session that asks for something: a process that had the connection open."""

    pid: int
    """Its process id on the host, at that moment."""
    inside: int | None
    """Its process id in the session."""
    program: str
    """Its name, as it calls itself: a program can give itself any name."""
    command: int | None
    """The command that it belongs to."""


Decision = Literal["allow_once", "allow_session", "allow_always", "reject_once", "reject_always"]
"""The user's answer.

``allow_once``: yes, this once. ``allow_session``: yes, and the same again in this session.
``allow_always``: yes, and the same again in any session. ``reject_once``: no, this once.
``reject_always``: no, and no again to the same.
"""


RequestState = Literal["pending", "allowed", "rejected", "expired"]
"""Where a request is in its life.

``pending``: nobody has answered. ``allowed``: the user said yes. ``rejected``: the user said
no. ``expired``: the session ended first, or nothing waits for the answer any more.
"""


@dataclass(frozen=True)
class RequestInfo:
    """Something that waits for the user's decision."""

    id: int
    """Its number."""
    session: str
    """The session that asks."""
    kind: Literal["folder", "host", "file", "tool"]
    """What it asks for: a ``folder``, to reach a ``host``, to change a ``file``, or to use a
    ``tool``.
    """
    wanted: str
    """What it wants, in its own words; the host and port it wants to reach; the path of the
    file; the tool and what it would be given.
    """
    reason: str
    """Why, in its own words; what is sent to the host first, and by which program; what is about
    to be done to the file, by which program, and why that is asked; the task that needs the
    tool.
    """
    access: Access
    """What it wants to do with it; of a host or a file it says nothing."""
    state: RequestState
    """Where it is in its life."""
    created: datetime
    """When it was asked."""
    decided: datetime | None
    """When it was answered."""
    decision: Decision | None
    """The answer."""
    note: str | None
    """A word of the user's to the one who asked."""
    grant: str | None
    """The name of the grant that came of it."""
    asker: Asker | None = None
    """Which program in the session asks for a folder, where the kernel tells."""


@dataclass(frozen=True)
class Asked:
    """To the one who asked, inside or on behalf of a session."""

    id: int
    """The request's number."""
    state: RequestState
    """Where it is in its life."""
    at: str | None
    """Where the folder is now, if the answer was yes."""
    access: Access | None
    """What may be done with it."""
    note: str | None
    """A word of the user's."""
