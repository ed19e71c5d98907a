# Made by tools/answers.py from docs/openapi.json; change that.
"""The daemon and its host."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from .changes import Retention

__all__ = ["Fact", "Info"]


@dataclass(frozen=True)
class Fact:
    """One fact about the host."""

    name: str
    """What was looked at."""
    value: str
    """What was found."""
    grade: Literal["good", "reduced", "blocking"]
    """``good``, ``reduced`` or ``blocking``."""
    consequence: str
    """What follows."""
    fix: str
    """What to do about it."""


@dataclass(frozen=True)
class Info:
    """Who answers."""

    version: str
    """The daemon's version."""
    pid: int
    """Its process id."""
    started: datetime
    """When it started."""
    user: int
    """The user whose sessions it keeps."""
    tier: Literal["native"]
    """How sessions are isolated: ``native``."""
    state: str
    """The folder with everything it keeps."""
    live: int
    """How many sessions live."""
    pooled: int
    """Sessions that are made in advance."""
    idle_exit: int
    """Seconds without a live session and without a client after which it leaves."""
    keeper: int | None
    """The process id of the keeper."""
    changes: Retention
    """How long changes of sessions that are gone can be undone."""
