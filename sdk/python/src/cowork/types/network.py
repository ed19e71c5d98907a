# Made by tools/answers.py from docs/openapi.json; change that.
"""What sessions reach, and secrets."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

__all__ = [
    "Egress",
    "HostTraffic",
    "NamedRule",
    "NetworkExplanation",
    "NetworkFlow",
    "NetworkInfo",
    "NetworkNotice",
    "NetworkRefusal",
    "NetworkTarget",
    "Otherwise",
    "Preset",
    "PublishedPort",
    "Renewal",
    "RenewalEncoding",
    "RenewalState",
    "RuleAction",
    "RuleInfo",
    "Secret",
    "SecretFile",
    "SecretMode",
    "TlsTreatment",
    "Traffic",
]


@dataclass(frozen=True)
class Preset:
    """A list of hosts that belong together."""

    name: str
    """Its name, e.g. ``github``."""
    description: str
    """What it is for."""
    hosts: list[str]
    """Its hosts, as in a rule."""


RuleAction = Literal["allow", "ask", "deny"]
"""What becomes of what a rule is about.

``allow``: it passes. ``ask``: the user is asked. ``deny``: it is refused.
"""


TlsTreatment = Literal["auto", "inspect", "tunnel"]
"""Whether what is inside TLS is looked into.

``auto``: where the rule needs it: for methods, paths, a secret, requests per time.
``inspect``: always. ``tunnel``: never.
"""


@dataclass(frozen=True)
class RuleInfo:
    """A rule about some hosts."""

    action: RuleAction
    """What becomes of it."""
    host: str
    """Which hosts: ``api.example.com``, ``*.example.com`` (below it), ``**.example.com`` (it and
    below it), ``10.0.0.0/8``, ``host`` (the host's own loopback); each with ``:port``,
    ``:from-to`` or ``:*`` where the ports are not 80 and 443.
    """
    tls: TlsTreatment
    """Whether what is inside TLS is looked into."""
    capture: str | None = None
    """How much of each body is kept of its requests and their answers, e.g. ``64KB``; nothing
    without this.
    """
    connections: int | None = None
    """Connections at a time."""
    methods: list[str] = field(default_factory=list)
    """Which methods; all without this."""
    paths: list[str] = field(default_factory=list)
    """Which paths, ``*`` for anything within one part and ``**`` for anything; all without this."""
    reason: str | None = None
    """Told to whoever a denial refuses."""
    requests: str | None = None
    """Requests in a time, e.g. ``120/1m``."""
    resolves_to: list[str] = field(default_factory=list)
    """Which private addresses its names may lead to, e.g. ``10.20.0.0/16``."""
    secret: str | None = None
    """The name of a secret that its requests get."""
    upload: str | None = None
    """Bytes that may be sent in a time, e.g. ``200M/1h``."""


@dataclass(frozen=True)
class NamedRule:
    """A rule with the name it is known by."""

    name: str
    """The name, e.g. ``allow api.example.com``."""
    rule: RuleInfo
    """The rule."""


SecretMode = Literal["swap", "inject", "pin"]
"""How a secret is used.

``swap``: the placeholder that the session knows is replaced where it appears. ``inject``:
every request to its hosts gets it. ``pin``: every request to its hosts gets it, and one that
brings another credential is refused.
"""


@dataclass(frozen=True)
class RenewalState:
    """How far a token that is renewed has come."""

    host: str
    """The host that renews it."""
    expires: datetime | None
    """When it expires, if that is known."""
    renewed: datetime | None
    """When it was last renewed."""
    failed: str | None
    """Why it cannot be renewed, since that was last tried."""


@dataclass(frozen=True)
class Secret:
    """A secret, without its value."""

    name: str
    """Its name."""
    hosts: list[str]
    """The hosts that may get it."""
    mode: SecretMode
    """How it is used."""
    carrier: str
    """Where it is put."""
    variable: str | None
    """A variable of the session's commands that holds the placeholder."""
    set: datetime
    """When it was last set."""
    store: str
    """Where its value is kept, and where the key to that is: ``sealed file; key in the kernel's
    keyring and a 0600 file``.
    """
    sessions: list[str]
    """Sessions that use it."""
    files: list[str] = field(default_factory=list)
    """Files in the home of the session that hold the placeholder."""
    renewal: RenewalState | None = None
    """How it is renewed, if it is."""


@dataclass(frozen=True)
class Egress:
    """The process that is a session's way out."""

    pid: int
    """Its process id."""
    restarts: int
    """How often it was started again."""
    confinement: list[str]
    """What holds it."""
    all_ports: bool
    """Whether every port of an allowed name arrives there; else only those that rules name."""


Otherwise = Literal["deny", "ask"]
"""What becomes of what no rule is about.

``deny``: it is refused. ``ask``: the user is asked.
"""


@dataclass(frozen=True)
class PublishedPort:
    """A published port."""

    inside: int
    """The port in the session."""
    outside: int
    """The port at the host's loopback."""


@dataclass(frozen=True)
class NetworkInfo:
    """The network of a session."""

    otherwise: Otherwise
    """What becomes of what no rule is about."""
    headless: bool
    """Whether nobody is there to be asked: what would wait for an answer is refused at once."""
    presets: list[str]
    """Its presets."""
    rules: list[NamedRule]
    """Its rules, each with the name it is known by."""
    generation: int
    """Counts changes."""
    egress: Egress | None
    """The process that is its way out, while there is one."""
    published: list[PublishedPort]
    """Ports of the session that the host's loopback reaches."""


@dataclass(frozen=True)
class NetworkExplanation:
    """Whether something would pass, and by which rule."""

    outcome: Literal["allow", "ask", "deny"]
    """``allow``, ``ask`` or ``deny``."""
    code: str
    """A stable word for the reason."""
    rule: str | None
    """The rule that decides."""
    tls: str | None
    """``inspect`` or ``tunnel``, where it passes."""
    sentence: str
    """The sentence."""


@dataclass(frozen=True)
class NetworkTarget:
    """What a program wants to reach."""

    host: str
    """A name, or an address."""
    port: int
    """The port."""
    method: str | None
    """The method of an HTTP request, if it is known."""
    path: str | None
    """Its path without the query, if it is known."""
    process: str | None
    """The program that wants it, and its process id on the host, if that could be found out."""
    via: str
    """How it arrived: ``capture``, ``connect``, ``forward``, ``socks``, ``dns``, ``published``."""


@dataclass(frozen=True)
class NetworkFlow:
    """Something that flows."""

    flow: int
    """Its number."""
    target: NetworkTarget
    """Where to."""
    rule: str | None
    """The rule that let it through."""
    up: int
    """Bytes from the session."""
    down: int
    """Bytes to the session."""
    ms: int
    """Milliseconds from its beginning."""
    held: bool
    """Whether it waits for the user."""


@dataclass(frozen=True)
class HostTraffic:
    """What went to a host, and came from it, since the session was made."""

    host: str
    """The host."""
    up: int
    """Bytes from the session."""
    down: int
    """Bytes to the session."""
    requests: int
    """Requests, and connections that were not looked into."""


@dataclass(frozen=True)
class NetworkNotice:
    """Something that a person should know."""

    time: datetime
    """When it last happened."""
    target: NetworkTarget
    """What it is about."""
    code: str
    """A stable word for it: ``untrusted-authority``, ``gave-way``, ``secret-reflected``, …."""
    sentence: str
    """The sentence, with what to do about it where something can be done."""
    times: int
    """How often."""


@dataclass(frozen=True)
class NetworkRefusal:
    """Something that was refused."""

    time: datetime
    """When it last happened."""
    target: NetworkTarget
    """What was wanted."""
    code: str
    """A stable word for the reason."""
    rule: str | None
    """The rule that refused it."""
    times: int
    """How often."""


@dataclass(frozen=True)
class Traffic:
    """What a session reaches."""

    refused: list[NetworkRefusal]
    """What was refused, the newest first."""
    noticed: list[NetworkNotice]
    """What a person should know, the newest first: a client that does not trust the session's
    authority, a secret that came back in an answer.
    """
    flows: list[NetworkFlow]
    """What flows now."""
    hosts: list[HostTraffic]
    """What went where, the most first.

    What reached nobody is not in it, nor what came in by a published port.
    """


@dataclass(frozen=True)
class SecretFile:
    """A file in the home of a session, with what stands for a secret."""

    name: str
    """Its name in the home of the session, e.g. ``.netrc``.

    Secrets with files of one name share it.
    """
    contents: str
    """What is in it: ``{secret}`` stands for the placeholder, ``{secret|url}`` for the same as
    URLs write it.
    """


RenewalEncoding = Literal["form", "json"]
"""How a request for another token is written.

``form``: as a form: what OAuth 2.0 says. ``json``: as JSON.
"""


@dataclass(frozen=True)
class Renewal:
    """How a token is renewed before it expires: by ``grant_type=refresh_token`` of OAuth 2.0,
    from the host.

    A session never has the refresh token.
    """

    refresh_token: str
    """The refresh token.

    Never shown again.
    """
    token_url: str
    """Where it is renewed: a URL with ``https``."""
    client_id: str | None = None
    """The client that the tokens were issued to."""
    client_secret: str | None = None
    """Its secret, if it has one.

    Never shown again.
    """
    encoding: RenewalEncoding | None = None
    """How the request is written."""
    expires_at: int | None = None
    """When the access token expires, in milliseconds since 1970; 0 if that is not known."""
    scope: str | None = None
    """What the token is for, if that is to be said each time."""
