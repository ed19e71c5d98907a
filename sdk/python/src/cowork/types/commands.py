# Made by tools/answers.py from docs/openapi.json; change that.
"""Commands."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from .folders import ProcessInfo

__all__ = [
    "Command",
    "CommandState",
    "CommandUsage",
    "Reason",
    "StreamKind",
    "Streams",
    "UsageOfCommand",
    "Whom",
]


@dataclass(frozen=True)
class Reason:
    """Why something is as it is: a stable code and a sentence."""

    code: str
    """Stable between versions: ``timeout``, ``cancelled``, ``not-found``, ``not-executable``,
    ``bad-cwd``, ``bad-command``, ``failed``, ``sandbox-lost``, ``stopped``, ``revoked``,
    ``time-over``, ``memory``.
    """
    sentence: str
    """For people."""


CommandState = Literal["starting", "running", "paused", "exited", "refused", "interrupted"]
"""Where a command is in its life.

``starting``: it is being started. ``running``: it runs. ``paused``: its processes stand
still. ``exited``: it has ended. ``refused``: it could not be started; the reason says why.
``interrupted``: the sandbox ended under it.
"""


StreamKind = Literal["null", "pipe", "terminal", "stdout"]
"""What one of a command's streams is.

``null``: the null device. ``pipe``: a pipe. ``terminal``: the command's terminal. ``stdout``:
for standard error: wherever standard output goes.
"""


@dataclass(frozen=True)
class Streams:
    """The streams of a command."""

    stdin: StreamKind
    """Standard input: ``null`` unless somebody will send any."""
    stdout: StreamKind
    """Standard output."""
    stderr: StreamKind
    """Standard error."""


@dataclass(frozen=True)
class CommandUsage:
    """What a command used."""

    user_us: int
    """CPU microseconds in user mode."""
    system_us: int
    """CPU microseconds in the kernel."""
    peak_kib: int
    """Largest resident size of any of its processes, in KiB."""
    wall_ms: int
    """Milliseconds from start to end."""
    read: int
    """Bytes read from storage."""
    written: int
    """Bytes written to storage."""
    processes: int
    """Most processes that it was seen to have at a time."""


@dataclass(frozen=True)
class Command:
    """A command."""

    number: int
    """Its number in the session."""
    session: str
    """The session."""
    argv: list[str]
    """Its words."""
    cwd: str
    """The folder it started in, in the session."""
    state: CommandState
    """Where it is in its life."""
    reason: Reason | None
    """Why it was refused or interrupted, or ended by us or by a limit."""
    pid: int | None
    """Its process id in the session."""
    streams: Streams
    """Its streams."""
    started: datetime
    """When it was started."""
    ended: datetime | None
    """When it ended."""
    code: int | None
    """The exit status, or 128+n for signal n, as shells say it."""
    signal: int | None
    """The signal that ended it."""
    usage: CommandUsage | None
    """What it used, with the children it waited for."""
    output: int
    """Bytes of output kept, of all streams."""
    dropped: int
    """Bytes of output that are no longer kept: the oldest go first."""
    discarded: int | None = None
    """In a session that lives once: how many things it left in its folder for deliverables,
    which go with it.
    """
    timeout: str | None = None
    """Time from its start until it is cancelled, e.g. ``90s``."""


@dataclass(frozen=True)
class UsageOfCommand:
    """What a command uses now, or has used if it is over."""

    time: datetime
    """When this was measured."""
    cpu_us: int
    """CPU microseconds of its processes, and of those they waited for."""
    memory: int
    """Bytes of memory now."""
    memory_peak: int
    """Most bytes of memory that one of its processes has had; while it runs, of those it has
    now.
    """
    read: int
    """Bytes read from storage."""
    written: int
    """Bytes written to storage."""
    processes: int
    """How many processes it has."""
    listed: list[ProcessInfo]
    """The first of them."""
    wall_ms: int
    """Milliseconds since it was started, or from start to end."""
    most_processes: int
    """Most processes that it was seen to have at a time: whenever it was measured."""


Whom = Literal["leader", "group", "foreground", "tree"]
"""Who gets a signal.

``leader``: the command's first process. ``group``: every process of the command's first
group. ``foreground``: the group that the terminal has in the foreground. ``tree``: everything
the command started.
"""
