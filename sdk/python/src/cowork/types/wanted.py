"""What a caller makes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from .._json import plain, present, raw
from .folders import Access, Writes
from .network import Otherwise, Renewal, RuleAction, SecretFile, SecretMode, TlsTreatment

__all__ = [
    "Agent",
    "Grant",
    "Limits",
    "Network",
    "OwnSecret",
    "ParentProxy",
    "PathName",
    "Rule",
    "Size",
    "Span",
    "as_agent",
    "as_grant",
    "as_rule",
    "host_path",
    "secret_body",
    "span",
]

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


def _moment(value: datetime) -> str:
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def host_path(path: PathName) -> str:
    """Make a path of the host absolute."""
    return str(Path(path).expanduser().absolute())


@dataclass(frozen=True)
class Grant:
    """A folder to grant.

    In ``"rw"`` every change is recorded and can be undone; in ``"staged"`` changes stay beside the
    folder until they are applied; ``"direct"`` has no record. ``direct`` names folders below it
    that are writable without a record. ``writes`` is what is allowed, where that differs from what
    the session as a whole has. ``force`` says that it is meant although the place is sensitive.
    At ``expires``, a moment with a time zone, it is revoked by itself.
    """

    path: PathName
    mode: Access = "rw"
    name: str | None = None
    force: bool = False
    direct: tuple[str, ...] = ()
    writes: Writes | None = None
    expires: datetime | None = None

    def body(self) -> dict[str, object]:
        """Say it as the daemon reads it."""
        return present(
            path=raw(host_path(self.path)),
            access=self.mode,
            name=self.name,
            force=self.force or None,
            direct=[raw(path) for path in self.direct] or None,
            writes=None if self.writes is None else plain(self.writes),
            expires=None if self.expires is None else _moment(self.expires),
        )


def as_grant(folder: PathName | Grant) -> Grant:
    """Take a path as a folder to grant read-write."""
    return folder if isinstance(folder, Grant) else Grant(folder)


@dataclass(frozen=True)
class Rule:
    """A rule about hosts, e.g. ``Rule("api.example.com", methods=["GET"])``."""

    host: str
    action: RuleAction = "allow"
    methods: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    tls: TlsTreatment = "auto"
    resolves_to: list[str] = field(default_factory=list)
    secret: str | None = None
    reason: str | None = None
    upload: str | None = None
    requests: str | None = None
    connections: int | None = None
    capture: str | None = None

    def body(self) -> dict[str, object]:
        """Say it as the daemon reads it."""
        fields = asdict(self)
        return {name: value for name, value in fields.items() if value not in (None, [])}


@dataclass(frozen=True)
class ParentProxy:
    """A proxy between this host and the world, e.g. ``http://proxy.example:3128``."""

    url: str
    without: str = ""

    def body(self) -> dict[str, object]:
        """Say it as the daemon reads it."""
        return {"url": self.url, "except": self.without}


@dataclass(frozen=True)
class Network:
    """What a session may reach. A rule that is a text allows a host."""

    rules: list[str | Rule] = field(default_factory=list)
    presets: list[str] = field(default_factory=list)
    secrets: list[str] = field(default_factory=list)
    otherwise: Otherwise = "deny"
    parent: ParentProxy | None = None
    headless: bool = False
    """Nobody is there to be asked: what would wait for an answer is refused at once."""

    def body(self) -> dict[str, object]:
        """Say it as the daemon reads it."""
        return {
            "parent": self.parent.body() if self.parent else None,
            "otherwise": self.otherwise,
            "headless": self.headless,
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


@dataclass(frozen=True)
class Agent:
    """An agent to ask, and how it is started.

    ``program`` is on the host and used in place of the one that is found on ``PATH``; with
    ``installed`` it is the one that was installed in the session. ``secret`` is what it proves
    itself with, in place of the first one that is stored. ``cwd`` is the folder that it works in,
    as the session sees it; without it the first one that was granted.
    """

    name: str = "claude"
    program: PathName | None = None
    installed: bool = False
    secret: str | None = None
    cwd: str | None = None

    def launch(self) -> dict[str, object]:
        """Say how it is started, as the daemon reads it."""
        path = os.environ.get("PATH")
        fields = present(
            program=None if self.program is None else raw(host_path(self.program)),
            path=None if path is None else raw(path),
            secret=self.secret,
            cwd=None if self.cwd is None else raw(self.cwd),
        )
        return {**fields, "from": "session" if self.installed else "any"}


def as_agent(agent: str | Agent | None) -> Agent:
    """Take a text as the name of an agent."""
    return agent if isinstance(agent, Agent) else Agent(agent or "claude")


def secret_body(
    value: str,
    *,
    hosts: Iterable[str] = (),
    mode: SecretMode | None = None,
    carrier: str | None = None,
    variable: str | None = None,
    files: Iterable[SecretFile] = (),
    renewal: Renewal | None = None,
) -> dict[str, object]:
    """Say a secret as the daemon reads it."""
    return present(
        value=value,
        hosts=list(hosts),
        mode=mode,
        carrier=carrier,
        variable=variable,
        files=[plain(file) for file in files] or None,
        renewal=None if renewal is None else plain(renewal),
    )


@dataclass(frozen=True)
class OwnSecret:
    """A secret of one session's own, which ends with it; see ``client.secrets.set``.

    ``placeholder`` is what stands for it in the session; made up without it.
    """

    name: str
    value: str = field(repr=False)
    hosts: tuple[str, ...] = ()
    mode: SecretMode | None = None
    carrier: str | None = None
    variable: str | None = None
    files: tuple[SecretFile, ...] = ()
    renewal: Renewal | None = field(default=None, repr=False)
    placeholder: str | None = None

    def body(self) -> dict[str, object]:
        """Say it as the daemon reads it."""
        secret = secret_body(
            self.value,
            hosts=self.hosts,
            mode=self.mode,
            carrier=self.carrier,
            variable=self.variable,
            files=self.files,
            renewal=self.renewal,
        )
        return present(name=self.name, secret=secret, placeholder=self.placeholder)
