# Made by tools/answers.py from docs/openapi.json; change that.
"""The record, and events."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

__all__ = ["AuditProblem", "CloudEvent", "Event", "Gap", "Record", "Verified"]


@dataclass(frozen=True)
class Record:
    """One record of the audit."""

    seq: int
    """Its number, from 1."""
    time: datetime
    """When it was written."""
    type: str
    """What it tells of, e.g. ``grant.added``."""
    session: str | None
    """The session."""
    data: Any
    """What happened."""
    previous: str
    """The hash of the record before it."""
    hash: str
    """The hash of this one."""


@dataclass(frozen=True)
class AuditProblem:
    """Something wrong with the audit."""

    file: str
    """The file it is in."""
    line: int
    """The line, from 1; 0 for the file as a whole."""
    sentence: str
    """What is wrong."""
    record: int | None
    """The number of the record it is about, if it is about one."""


@dataclass(frozen=True)
class Verified:
    """What the verification of the audit found."""

    whole: bool
    """Whether everything is as it was written."""
    records: int
    """How many records there are."""
    files: int
    """How many files."""
    head: str
    """The hash of the last record: noted elsewhere, it proves all before it."""
    problems: list[AuditProblem]
    """What is wrong."""


@dataclass(frozen=True)
class Gap:
    """Events that are no longer kept."""

    from_: int
    """The number of the first."""
    to: int
    """The number of the last."""


@dataclass(frozen=True)
class Event:
    """Something that happened."""

    id: int
    """Its number, from 1, without gaps."""
    time: datetime | None
    """When."""
    type: str
    """What, e.g. ``session.state``."""
    session: str | None
    """The session."""
    data: Any
    """The details."""


@dataclass(frozen=True)
class CloudEvent:
    """An event as ``CloudEvents`` 1.0 has it, in its JSON format."""

    specversion: str
    """``1.0``."""
    id: str
    """The event's number, as text."""
    source: str
    """``/sessions/ID``, or ``/daemon``."""
    type: str
    """What happened, e.g. ``session.state``."""
    time: datetime
    """When."""
    datacontenttype: str
    """``application/json``."""
    seq: int
    """The event's number: an extension, to put events in order."""
    data: Any
    """The details."""
    subject: str | None = None
    """What it happened to, e.g. ``commands/3``, where it is one thing."""
