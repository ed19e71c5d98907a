# Made by tools/answers.py from docs/openapi.json; change that.
"""Granted folders."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

__all__ = [
    "Access",
    "Caps",
    "GrantInfo",
    "Guards",
    "ProcessInfo",
    "Quota",
    "Regranted",
    "Revoked",
    "Translated",
    "Writes",
]

Access = Literal["ro", "rw", "direct", "staged"]
"""What a session may do with a folder.

``ro``: read and list. ``rw``: also create, change and delete; every change is recorded and
can be undone. ``direct``: also create, change and delete, without a record. ``staged``:
changes stay beside the folder until they are applied.
"""


@dataclass(frozen=True)
class Caps:
    """How much is saved of what is about to be lost."""

    ask: bool | None = None
    """Whether the user is asked before something is done that cannot be undone."""
    file: str | None = None
    """Largest file that is copied, e.g. ``64M``.

    What can be kept without copying has no limit.
    """
    session: str | None = None
    """Most bytes that are copied for the session, e.g. ``1G``."""


@dataclass(frozen=True)
class Guards:
    """When to ask before a command goes on."""

    removals: int | None = None
    """After so many files that were there before were removed or overwritten in one set; 0 for
    never.
    """
    share: int | None = None
    """After this part of the folder's files, in percent; 0 for never."""


@dataclass(frozen=True)
class Quota:
    """How much a session may add to a folder."""

    bytes: str | None = None
    """Bytes, e.g. ``2G``."""
    files: int | None = None
    """Files, folders and links."""


@dataclass(frozen=True)
class Writes:
    """What is allowed where changes are recorded.

    What is not named gets a default, or what the session as a whole has.
    """

    block: list[str] = field(default_factory=list)
    """Endings that are refused too."""
    blocked: list[str] | None = None
    """Endings of names that are refused, without the dot, in place of the usual ones."""
    caps: Caps | None = None
    """How much is saved of what is about to be lost."""
    contents: bool | None = None
    """Whether such files are known by how they begin as well, whatever they are called."""
    guards: Guards | None = None
    """When to ask before going on."""
    quota: Quota | None = None
    """How much may be added to a folder."""
    unblock: list[str] = field(default_factory=list)
    """Endings that are not refused after all."""


@dataclass(frozen=True)
class GrantInfo:
    """A granted folder."""

    name: str
    """Its name in the session."""
    path: str
    """Where it lies on the host."""
    at: str
    """Where it appears in the session."""
    access: Access
    """What the session may do with it."""
    granted: datetime
    """When it was granted."""
    submounts: list[str]
    """Mounts inside it that came along, by their path on the host."""
    request: int | None
    """The request that it answers."""
    sensitive: str | None
    """Why the place is sensitive, where it is."""
    direct: list[str]
    """Folders below it that are writable without a record."""
    writes: Writes
    """What is allowed, where that differs from what the session as a whole has."""
    expires: datetime | None = None
    """When it is revoked by itself."""


@dataclass(frozen=True)
class ProcessInfo:
    """A process."""

    pid: int
    """Its id on the host."""
    inside: int | None
    """Its id in the session, where it is known."""
    name: str
    """Its name."""


@dataclass(frozen=True)
class Revoked:
    """What a revocation did."""

    name: str
    """The grant's name."""
    killed: list[ProcessInfo]
    """Processes that held on to the folder and were killed."""
    certainty: Literal["kernel", "scan", "session ended", "not running", "unchanged"]
    """How sure it is that nothing holds on: ``kernel``, ``scan``, ``session ended``, ``not
    running``, or ``unchanged`` where nothing had to be taken away.
    """


@dataclass(frozen=True)
class Regranted:
    """A changed grant, and what the change did."""

    grant: GrantInfo
    """The grant as it is now."""
    revoked: Revoked
    """What taking the old one away did."""


@dataclass(frozen=True)
class Translated:
    """A path in both views."""

    host: str
    """On the host."""
    session: str
    """In the session."""
