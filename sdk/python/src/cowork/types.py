"""What is given to the daemon, and what it answers with.

The classes with ``Info`` at the end and those without any method are answers, field by field as in
the daemon's OpenAPI document. What a caller makes is :class:`Grant`, :class:`Rule`,
:class:`Network`, :class:`Limits` and :class:`Size`.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from ._json import present, raw
from .errors import CommandFailed, CommandTimeout

Access = Literal["ro", "rw", "direct", "staged"]
"""What a session may do with a folder."""

Decision = Literal["allow_once", "allow_session", "allow_always", "reject_once", "reject_always"]
"""The user's answer to a request."""

StreamName = Literal["stdout", "stderr", "terminal"]
"""Where a piece of output comes from."""

Span = float | timedelta | str
"""A span of time: seconds, or as text, e.g. ``"90s"``, ``"8h"``."""

PathName = str | os.PathLike[str]
"""A path of the host. ``~`` at its start is the user's home."""


def span(value: Span | None) -> str | None:
    """Say a span of time as the daemon reads it."""
    if value is None or isinstance(value, str):
        return value
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    return f"{max(0, round(seconds * 1000))}ms"


def host_path(path: PathName) -> str:
    """Make a path of the host absolute."""
    return str(Path(path).expanduser().absolute())


# What a caller makes.


@dataclass(frozen=True)
class Grant:
    """A folder to grant.

    ``mode`` is ``"ro"`` or ``"rw"``; ``"direct"`` and ``"staged"`` where the daemon records
    changes. ``direct`` names folders below it that are writable without a record. ``force`` says
    that it is meant although the place is sensitive.
    """

    path: PathName
    mode: Access = "rw"
    name: str | None = None
    force: bool = False
    direct: tuple[str, ...] = ()

    def body(self) -> dict[str, object]:
        """Say it as the daemon reads it."""
        return present(
            path=raw(host_path(self.path)),
            access=self.mode,
            name=self.name,
            force=self.force or None,
            direct=[raw(path) for path in self.direct] or None,
        )


@dataclass(frozen=True)
class Rule:
    """A rule about hosts, e.g. ``Rule("api.example.com", methods=["GET"])``."""

    host: str
    action: Literal["allow", "ask", "deny"] = "allow"
    methods: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    tls: Literal["auto", "inspect", "tunnel"] = "auto"
    resolves_to: list[str] = field(default_factory=list)
    secret: str | None = None
    reason: str | None = None
    upload: str | None = None
    requests: str | None = None
    connections: int | None = None

    def body(self) -> dict[str, object]:
        """Say it as the daemon reads it."""
        fields = asdict(self)
        return {name: value for name, value in fields.items() if value not in (None, [])}


@dataclass(frozen=True)
class Network:
    """What a session may reach. A rule that is a text allows a host."""

    rules: list[str | Rule] = field(default_factory=list)
    presets: list[str] = field(default_factory=list)
    secrets: list[str] = field(default_factory=list)
    otherwise: Literal["deny", "ask"] = "deny"

    def body(self) -> dict[str, object]:
        """Say it as the daemon reads it."""
        return {
            "otherwise": self.otherwise,
            "rules": [as_rule(rule).body() for rule in self.rules],
            "presets": list(self.presets),
            "secrets": list(self.secrets),
        }


def as_rule(rule: str | Rule) -> Rule:
    """Take a text as the host of an allowance."""
    return Rule(rule) if isinstance(rule, str) else rule


@dataclass(frozen=True)
class Limits:
    """What a session may use; what is not named gets a default that fits the host."""

    processes: int | None = None
    memory: str | None = None
    cpus: float | str | None = None
    open_files: int | None = None
    scratch: str | None = None
    disk: str | None = None
    wall: Span | None = None

    def body(self) -> dict[str, object]:
        """Say it as the daemon reads it."""
        return present(
            processes=self.processes,
            memory=self.memory,
            cpus=None if self.cpus is None else str(self.cpus),
            open_files=self.open_files,
            scratch=self.scratch,
            disk=self.disk,
            wall=span(self.wall),
        )


@dataclass(frozen=True)
class Size:
    """The size of a terminal, in characters."""

    columns: int = 80
    rows: int = 24


# What the daemon answers with.


@dataclass(frozen=True)
class Retention:
    """How long changes of sessions that are gone can be undone."""

    days: int
    bytes: int


@dataclass(frozen=True)
class Info:
    """The daemon."""

    version: str
    pid: int
    started: datetime
    user: int
    tier: str
    state: str
    live: int
    pooled: int
    idle_exit: int
    keeper: int | None = None
    changes: Retention | None = None


@dataclass(frozen=True)
class Fact:
    """One fact about the host."""

    name: str
    value: str
    grade: str
    consequence: str
    fix: str


@dataclass(frozen=True)
class GrantInfo:
    """A granted folder."""

    name: str
    path: str
    at: str
    access: str
    granted: datetime
    submounts: list[str]
    request: int | None
    sensitive: str | None
    direct: list[str] = field(default_factory=list)
    writes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ProcessInfo:
    """A process."""

    pid: int
    inside: int | None
    name: str


@dataclass(frozen=True)
class Revoked:
    """What a revocation did."""

    name: str
    killed: list[ProcessInfo]
    certainty: str


@dataclass(frozen=True)
class Regranted:
    """A changed grant, and what the change did."""

    grant: GrantInfo
    revoked: Revoked


@dataclass(frozen=True)
class Limit:
    """How a limit is kept."""

    limit: str
    value: str
    strength: str
    means: str


@dataclass(frozen=True)
class Enforced:
    """One layer of protection."""

    layer: str
    state: str
    observed: str


@dataclass(frozen=True)
class Sandbox:
    """The sandbox of a session."""

    pid: int
    connected: bool
    missed: int
    restarts: int
    since: datetime


@dataclass(frozen=True)
class CommandBrief:
    """A command in a list."""

    number: int
    argv: list[str]


@dataclass(frozen=True)
class NetworkBrief:
    """The network of a session, in short."""

    otherwise: str
    rules: int
    up: bool


@dataclass(frozen=True)
class SessionInfo:
    """A session as it was at one moment."""

    id: str
    state: str
    reason: str | None
    tier: str
    profile: str
    life: str
    created: datetime
    changed: datetime
    labels: dict[str, str]
    folder: str
    outputs: str | None
    uploads: str | None
    grants: list[GrantInfo]
    limits: list[Limit]
    enforcement: list[Enforced]
    sandbox: Sandbox | None
    running: list[CommandBrief]
    commands: int
    pending: int
    network: NetworkBrief | None = None


@dataclass(frozen=True)
class Usage:
    """What a session uses."""

    time: datetime
    cpu_us: int
    memory: int
    memory_peak: int
    read: int
    written: int
    scratch: int
    disk: int
    processes: int
    listed: list[ProcessInfo]
    wall_ms: int


@dataclass(frozen=True)
class Streams:
    """The streams of a command."""

    stdin: str
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Reason:
    """Why something is as it is: a stable code and a sentence."""

    code: str
    sentence: str


@dataclass(frozen=True)
class CommandUsage:
    """What a command used."""

    user_us: int
    system_us: int
    peak_kib: int
    wall_ms: int


@dataclass(frozen=True)
class Command:
    """A command as it was at one moment."""

    number: int
    session: str
    argv: list[str]
    cwd: str
    state: str
    reason: Reason | None
    pid: int | None
    streams: Streams
    started: datetime
    ended: datetime | None
    code: int | None
    signal: int | None
    usage: CommandUsage | None
    output: int
    dropped: int
    timeout: str | None = None
    discarded: int | None = None


@dataclass(frozen=True)
class Output:
    """A piece of what a command wrote."""

    stream: StreamName
    data: bytes

    @property
    def text(self) -> str:
        """As text; what is not UTF-8 is replaced."""
        return self.data.decode(errors="replace")


@dataclass(frozen=True)
class Result:
    """How a command ended, and what it wrote.

    The exit code is the command's own; 128+n for signal n, 124 when its time was over, 125 when
    the sandbox ended under it.
    """

    command: Command
    pieces: list[Output] = field(repr=False)

    @property
    def exit_code(self) -> int:
        """The exit code."""
        if self.timed_out:
            return 124
        return 125 if self.command.code is None else self.command.code

    @property
    def ok(self) -> bool:
        """Whether it succeeded."""
        return self.exit_code == 0

    @property
    def signal(self) -> int | None:
        """The signal that ended it."""
        return self.command.signal

    @property
    def reason(self) -> Reason | None:
        """Why it was interrupted or ended by the daemon."""
        return self.command.reason

    @property
    def timed_out(self) -> bool:
        """Whether its time was over."""
        return self.command.reason is not None and self.command.reason.code == "timeout"

    @cached_property
    def stdout_bytes(self) -> bytes:
        """What it wrote to standard output, or to its terminal."""
        return b"".join(piece.data for piece in self.pieces if piece.stream != "stderr")

    @cached_property
    def stderr_bytes(self) -> bytes:
        """What it wrote to standard error."""
        return b"".join(piece.data for piece in self.pieces if piece.stream == "stderr")

    @cached_property
    def output_bytes(self) -> bytes:
        """All it wrote, in the order in which it came."""
        return b"".join(piece.data for piece in self.pieces)

    @property
    def stdout(self) -> str:
        """What it wrote to standard output, as text."""
        return self.stdout_bytes.decode(errors="replace")

    @property
    def stderr(self) -> str:
        """What it wrote to standard error, as text."""
        return self.stderr_bytes.decode(errors="replace")

    @property
    def output(self) -> str:
        """All it wrote, in the order in which it came, as text."""
        return self.output_bytes.decode(errors="replace")

    @property
    def duration(self) -> float:
        """Seconds from its start to its end."""
        command = self.command
        if command.usage is not None:
            return command.usage.wall_ms / 1000
        ended = command.ended or command.started
        return (ended - command.started).total_seconds()

    def check(self) -> Result:
        """Raise an exception unless it succeeded."""
        if self.ok:
            return self
        words = " ".join(self.command.argv)
        if self.timed_out:
            raise CommandTimeout(f"`{words}` took longer than {self.command.timeout}", self)
        why = f": {self.reason.sentence}" if self.reason else ""
        last = self.stderr.strip().rpartition("\n")[2]
        said = f": {last}" if last and not why else ""
        raise CommandFailed(f"`{words}` ended with {self.exit_code}{why}{said}", self)


@dataclass(frozen=True)
class RequestInfo:
    """Something that waits for the user's decision, or has waited."""

    id: int
    session: str
    kind: str
    wanted: str
    reason: str
    access: str
    state: str
    created: datetime
    decided: datetime | None = None
    decision: str | None = None
    note: str | None = None
    grant: str | None = None


@dataclass(frozen=True)
class Record:
    """One record of the audit."""

    seq: int
    time: datetime
    type: str
    session: str | None
    data: Any
    previous: str
    hash: str


@dataclass(frozen=True)
class AuditProblem:
    """Something wrong with the audit."""

    file: str
    line: int
    sentence: str


@dataclass(frozen=True)
class Verified:
    """What the verification of the audit found."""

    whole: bool
    records: int
    files: int
    head: str
    problems: list[AuditProblem]


@dataclass(frozen=True)
class Event:
    """Something that happened. One of type ``gap`` says which are no longer kept."""

    id: int
    time: datetime | None
    type: str
    session: str | None
    data: Any


@dataclass(frozen=True)
class FileEntry:
    """A file or folder of a session."""

    name: str
    kind: str
    size: int
    modified: datetime


@dataclass(frozen=True)
class Translated:
    """A path in both views."""

    host: str
    session: str


@dataclass(frozen=True)
class Preset:
    """A list of hosts that belong together."""

    name: str
    description: str
    hosts: list[str]


@dataclass(frozen=True)
class RuleInfo:
    """A rule as it is kept."""

    host: str
    action: str = "allow"
    methods: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    tls: str = "auto"
    resolves_to: list[str] = field(default_factory=list)
    secret: str | None = None
    reason: str | None = None
    upload: str | None = None
    requests: str | None = None
    connections: int | None = None


@dataclass(frozen=True)
class NamedRule:
    """A rule with the name it is known by."""

    name: str
    rule: RuleInfo


@dataclass(frozen=True)
class Egress:
    """The process that is a session's way out."""

    pid: int
    restarts: int
    confinement: list[str]
    all_ports: bool


@dataclass(frozen=True)
class PublishedPort:
    """A port of a session that the host's loopback reaches."""

    inside: int
    outside: int


@dataclass(frozen=True)
class NetworkInfo:
    """The network of a session."""

    otherwise: str
    presets: list[str]
    rules: list[NamedRule]
    generation: int
    egress: Egress | None
    published: list[PublishedPort]


@dataclass(frozen=True)
class NetworkTarget:
    """What a program wants to reach."""

    host: str
    port: int
    method: str | None
    path: str | None
    process: str | None
    via: str


@dataclass(frozen=True)
class NetworkFlow:
    """Something that flows."""

    flow: int
    target: NetworkTarget
    rule: str | None
    up: int
    down: int
    ms: int
    held: bool


@dataclass(frozen=True)
class NetworkRefusal:
    """Something that was refused."""

    time: datetime
    target: NetworkTarget
    code: str
    rule: str | None
    times: int


@dataclass(frozen=True)
class HostTraffic:
    """What went to a host, and came from it."""

    host: str
    up: int
    down: int
    requests: int


@dataclass(frozen=True)
class Traffic:
    """What a session reaches, and what it was refused."""

    refused: list[NetworkRefusal]
    flows: list[NetworkFlow]
    hosts: list[HostTraffic]


@dataclass(frozen=True)
class NetworkExplanation:
    """Whether something would pass, and by which rule."""

    outcome: str
    code: str
    rule: str | None
    tls: str | None
    sentence: str


@dataclass(frozen=True)
class Secret:
    """A secret, without its value."""

    name: str
    hosts: list[str]
    mode: str
    carrier: str
    variable: str | None
    set: datetime
    store: str
    sessions: list[str]


@dataclass(frozen=True)
class ChangedFolder:
    """A folder of the host in which something was changed."""

    grant: str
    path: str


@dataclass(frozen=True)
class ChangeSet:
    """A set of changes: those of one command, one undo, or one application."""

    set: int
    kind: str
    undoes: list[int]
    command: int | None
    argv: list[str]
    began: datetime
    last: datetime
    records: int
    undone_by: int | None
    folders: list[ChangedFolder]


@dataclass(frozen=True)
class ChangeMark:
    """What a person should know about a change."""

    mark: str
    reason: str | None


@dataclass(frozen=True)
class Change:
    """One name that is not as it was."""

    grant: str
    path: str
    host: str
    kind: str
    from_: str | None
    modified: bool
    file: str
    before: int | None
    after: int | None
    sets: list[int]
    marks: list[ChangeMark]


@dataclass(frozen=True)
class Changes:
    """What changed in a session's granted folders."""

    session: str
    sets: list[ChangeSet]
    changes: list[Change]


@dataclass(frozen=True)
class Difference:
    """The difference of one name's contents."""

    change: Change
    text: str | None
    note: str | None


@dataclass(frozen=True)
class RestoredName:
    """A name, and what is said of it."""

    host: str
    how: str


@dataclass(frozen=True)
class ChangeConflict:
    """Something that the user has changed since."""

    host: str
    now: str
    before: str
    outcome: str


@dataclass(frozen=True)
class Restored:
    """What an undo or redo did, or would do."""

    set: int | None
    names: int
    done: list[RestoredName]
    conflicts: list[ChangeConflict]
    lost: list[RestoredName]


@dataclass(frozen=True)
class Discarded:
    """The staged changes of which folders were thrown away."""

    folders: list[ChangedFolder]
