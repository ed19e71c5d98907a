# Made by tools/answers.py from docs/openapi.json; change that.
"""Sessions."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from .changes import NamePolicy
from .folders import GrantInfo, ProcessInfo, Writes
from .network import Otherwise
from .tasks import Profile

__all__ = [
    "CommandBrief",
    "Enforced",
    "Life",
    "Limit",
    "NetworkBrief",
    "PlaceName",
    "Processes",
    "ReplacedFile",
    "Sandbox",
    "SessionInfo",
    "State",
    "Usage",
    "View",
    "WritableAs",
    "WritablePlace",
]


@dataclass(frozen=True)
class Enforced:
    """One layer of protection."""

    layer: str
    """Which."""
    state: Literal["in force", "absent", "left out"]
    """``in force``, ``absent`` or ``left out``."""
    observed: str
    """What was seen that says so."""


Life = Literal["kept", "once"]
"""How long a session lives.

``kept``: until it is removed. ``once``: until its first command has ended or whoever is
attached to that leaves; its home is in memory, and nothing of it stays but the record.
"""


@dataclass(frozen=True)
class Limit:
    """How a limit is kept."""

    limit: str
    """Which."""
    value: str
    """How much, for people."""
    strength: Literal["enforced", "best-effort", "none"]
    """``enforced``, ``best-effort`` or ``none``."""
    means: str
    """By what means."""


@dataclass(frozen=True)
class NetworkBrief:
    """The network of a session, in short."""

    otherwise: Otherwise
    """What becomes of what no rule is about."""
    headless: bool
    """Whether nobody is there to be asked: what would wait for an answer is refused at once."""
    rules: int
    """How many rules it has, with those of its presets and secrets."""
    up: bool
    """Whether the process that is its way out is there; without it nothing passes."""


@dataclass(frozen=True)
class CommandBrief:
    """A command in a list."""

    number: int
    """Its number in the session."""
    argv: list[str]
    """Its words."""


@dataclass(frozen=True)
class Sandbox:
    """The sandbox of a session."""

    pid: int
    """The process id of its PID 1, on the host."""
    connected: bool
    """Whether PID 1 answered the last heartbeat."""
    missed: int
    """Heartbeats missed in a row."""
    restarts: int
    """How often it was made again after a failure."""
    since: datetime
    """When it was made."""


State = Literal["creating", "ready", "running", "paused", "stopped", "failed", "ended"]
"""Where a session is in its life.

``creating``: it is being made, or made again. ``ready``: it waits for commands. ``running``:
commands run in it. ``paused``: its processes stand still. ``stopped``: it has no processes;
its home is kept and it can be started. ``failed``: it could not be made or kept; the reason
says why. ``ended``: it is over. What it left can be looked at until it is removed.
"""


@dataclass(frozen=True)
class SessionInfo:
    """A session."""

    id: str
    """Its id."""
    state: State
    """Where it is in its life."""
    reason: str | None
    """Why it is there, where that is not obvious."""
    tier: Literal["native"]
    """How it is isolated: ``native``."""
    profile: Profile
    """Its walls."""
    life: Life
    """How long it lives."""
    created: datetime
    """When it was made."""
    changed: datetime
    """When it last changed its state."""
    labels: dict[str, str]
    """Names and values of the user's."""
    folder: str
    """Its own folder, in its own view; granted folders are in ``mnt`` below."""
    outputs: str | None
    """Where deliverables appear on the host."""
    uploads: str | None
    """Where uploads lie on the host."""
    grants: list[GrantInfo]
    """Folders it sees."""
    limits: list[Limit]
    """How each limit is kept."""
    enforcement: list[Enforced]
    """Which protection is in force, as observed."""
    sandbox: Sandbox | None
    """Its sandbox, while there is one."""
    running: list[CommandBrief]
    """Commands that run."""
    commands: int
    """How many commands were ever started."""
    pending: int
    """How many requests wait for an answer."""
    network: NetworkBrief | None
    """Its network, if it has one."""
    skills: str | None = None
    """The folder of the host that it sees as ``mnt/skills``, if there is one."""


@dataclass(frozen=True)
class Processes:
    """Whether a process runs in a session."""

    running: bool
    """Whether one does that was meant."""
    processes: list[ProcessInfo]
    """Those that were meant, at most 256."""


@dataclass(frozen=True)
class Usage:
    """What a session uses."""

    time: datetime
    """When this was measured."""
    cpu_us: int
    """CPU microseconds of everything that runs or ran in it, also before its sandbox was made
    again.
    """
    memory: int
    """Bytes of memory now."""
    memory_peak: int
    """Most bytes of memory at any moment that is known."""
    read: int
    """Bytes read from storage, of all that runs or ran in it."""
    written: int
    """Bytes written to storage, of all that runs or ran in it."""
    scratch: int
    """Bytes of scratch in memory."""
    disk: int
    """Bytes on disk: home and outputs."""
    processes: int
    """How many processes there are."""
    listed: list[ProcessInfo]
    """The first of them."""
    wall_ms: int
    """Milliseconds in which it had a sandbox, also before its sandbox was made again."""


@dataclass(frozen=True)
class PlaceName:
    """A rule about names in granted folders, or in a place of the host's tree that can be
    changed.
    """

    pattern: str
    """Which names: components with ``*``, ``?`` and ``**``, at any depth unless it starts with
    ``/``, which stands for the folder or place itself.
    """
    policy: NamePolicy
    """What happens to a change."""
    reason: str | None = None
    """Why, in one sentence."""


@dataclass(frozen=True)
class ReplacedFile:
    """A file with other contents."""

    path: str
    """Where it is, on the host and in the session."""
    contents: str
    """What the session reads there."""


WritableAs = Literal["rw", "direct"]
"""How a place of the host's is changed.

``rw``: by the rules, and every change is recorded; a folder. ``direct``: without rules and
without a record; a file or a folder.
"""


@dataclass(frozen=True)
class WritablePlace:
    """A file or folder of the host that a session may change, at its own path."""

    path: str
    """Where it is, on the host and in the session."""
    access: WritableAs | None = None
    """How it is changed."""
    force: bool | None = None
    """Whether it is meant although the place is sensitive."""
    names: list[PlaceName] | None = None
    """With ``rw``: rules about names in place of the usual ones."""
    writes: Writes | None = None
    """With ``rw``: what is allowed; what is not named is as for the session."""


@dataclass(frozen=True)
class View:
    """The host's files as a session sees them: all of them, read-only, at their own paths, but
    for what is named here.

    A path counts with everything below it, and of two the deeper one counts. Paths are
    absolute and free of symbolic links; each is named once. The daemon's own folders and
    ``/run``, ``/proc``, ``/sys`` and ``/dev`` of the host are never seen.
    """

    hidden: list[str] = field(default_factory=list)
    """Files and folders of which nothing is seen: they are empty.

    One that does not exist is left out.
    """
    replaced: list[ReplacedFile] = field(default_factory=list)
    """Files that have other contents in the session, read-only.

    One that does not exist is left out.
    """
    scratch: list[str] = field(default_factory=list)
    """Folders that are private, writable, in memory, and empty to begin with.

    One is there on the host, or lies in another of these.
    """
    shown: list[str] = field(default_factory=list)
    """Files and folders that are seen read-only all the same, in hidden or writable ones."""
    writable: list[WritablePlace] = field(default_factory=list)
    """Files and folders that can be changed."""
