# Made by tools/answers.py from docs/openapi.json; change that.
"""What agents do."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from .changes import ChangeKind
from .commands import Reason
from .network import NetworkTarget
from .requests import RequestState

__all__ = [
    "AgentCredential",
    "AgentInfo",
    "AgentSecret",
    "AgentSource",
    "AgentStep",
    "AgentTask",
    "Approvals",
    "PlanState",
    "PlanStep",
    "PreparedAgent",
    "Profile",
    "TaskChange",
    "TaskHost",
    "TaskInfo",
    "TaskMessage",
    "TaskMessageKind",
    "TaskProtocol",
    "TaskRefusal",
    "TaskRefusedChange",
    "TaskRequest",
    "TaskState",
    "TaskSummary",
    "TaskUsage",
]


@dataclass(frozen=True)
class AgentSecret:
    """A secret that an agent can prove itself with."""

    name: str
    """The name it is stored under."""
    about: str
    """What it is."""
    variable: str
    """The variable that holds its placeholder in a session."""
    hosts: list[str]
    """The hosts that it is for."""
    stored: bool
    """Whether there is one."""


@dataclass(frozen=True)
class AgentCredential:
    """What an agent proves itself with."""

    optional: bool
    """Whether the agent runs without."""
    secrets: list[AgentSecret]
    """Secrets that do; the first one that is stored is used."""


Profile = Literal["strict", "nested"]
"""A set of walls around a session.

``strict``: no namespaces and no mounts inside; Landlock rules for files. ``nested``: for
programs that bring a sandbox of their own.
"""


TaskProtocol = Literal["claude-stream-json", "codex-exec-json", "plain"]
"""What is spoken with an agent about a task.

``claude-stream-json``: lines of JSON in both directions, as Claude Code speaks them.
``codex-exec-json``: the prompt as the last argument, lines of JSON as the answer, as Codex
speaks them. ``plain``: the prompt as the last argument, text as the answer.
"""


@dataclass(frozen=True)
class AgentInfo:
    """An agent that can run in sessions."""

    name: str
    """Its name."""
    about: str
    """What it is."""
    file: str | None
    """The file of the user's that defines it; one without is built in."""
    problem: str | None
    """What is wrong with that file.

    The agent cannot be used then.
    """
    program: str | None
    """Its program on this host, if it is found."""
    install: str | None
    """What npm installs in a session, where that is possible."""
    profile: Profile
    """The walls it runs behind unless asked otherwise."""
    presets: list[str]
    """Lists of hosts it reaches."""
    hosts: list[str]
    """Hosts it reaches."""
    credentials: list[AgentCredential]
    """What it proves itself with; one secret of each is used."""
    task: TaskProtocol | None
    """How a task is given to it, if it can be."""


@dataclass(frozen=True)
class AgentTask:
    """How a task is given to an agent."""

    protocol: TaskProtocol
    """What is spoken."""
    arguments: list[str]
    """Arguments after those of ``argv``."""


@dataclass(frozen=True)
class PreparedAgent:
    """A session is ready for an agent: this is the command to start."""

    agent: str
    """The agent."""
    argv: list[str]
    """Its program and arguments; those of the user follow."""
    env: dict[str, str]
    """Variables of its own.

    What stands for secrets is among them, and no secret.
    """
    cwd: str
    """The folder to start in, as the session sees it: that of the user's work."""
    program: str | None
    """The program on this host; one that was installed in the session is not."""
    secrets: list[str]
    """Secrets that it proves itself with, by name."""
    task: AgentTask | None
    """How a task is given to it, if it can be."""


Approvals = Literal["ask", "auto", "deny"]
"""What happens when an agent asks whether it may use a tool.

``ask``: the user is asked: the question is a request of kind ``tool``. ``auto``: it may. The
session's own limits hold as ever. ``deny``: it may not.
"""


PlanState = Literal["pending", "active", "done"]
"""How far a step of a plan is.

``pending``: it is still to be done. ``active``: it is being done. ``done``: it is done.
"""


@dataclass(frozen=True)
class PlanStep:
    """A step of a plan."""

    text: str
    """What is to be done."""
    state: PlanState
    """How far it is."""


TaskState = Literal[
    "waiting", "running", "paused", "asking", "done", "failed", "cancelled", "interrupted"
]
"""Where a task is in its life.

``waiting``: tasks before it are not over, or the session is not ready. ``running``: the agent
works. ``paused``: the user has stopped it for a while. ``asking``: the agent waits for the
user's answer to a request. ``done``: the agent has answered. ``failed``: it could not be
done; the reason says why. ``cancelled``: the user has called it off. ``interrupted``: its
agent was lost in the middle: the sandbox ended, or its output could not be taken up.
"""


@dataclass(frozen=True)
class TaskChange:
    """A name that changed during a task."""

    grant: str
    """The grant's name."""
    path: str
    """The path below the granted folder."""
    host: str
    """The path on the host."""
    kind: ChangeKind
    """What became of it."""


@dataclass(frozen=True)
class TaskHost:
    """A host that was reached during a task."""

    host: str
    """The host."""
    up: int
    """Bytes from the session."""
    down: int
    """Bytes to the session."""
    requests: int
    """Connections and requests."""


@dataclass(frozen=True)
class TaskRefusal:
    """Something that was refused during a task."""

    target: NetworkTarget
    """What was wanted."""
    code: str
    """A stable word for the reason."""
    times: int
    """How often."""


@dataclass(frozen=True)
class TaskRefusedChange:
    """A change of a file that a rule refused during a task."""

    grant: str
    """The grant's name."""
    path: str
    """The path below the granted folder."""
    operation: str
    """What was to be done."""
    reason: str
    """Why it was refused."""
    times: int
    """How often."""


@dataclass(frozen=True)
class TaskRequest:
    """Something that was asked of the user during a task."""

    id: int
    """The request's number."""
    kind: str
    """What it asked for: ``folder``, ``host``, ``file`` or ``tool``."""
    wanted: str
    """What it wanted."""
    state: RequestState
    """What became of it."""


@dataclass(frozen=True)
class TaskUsage:
    """What a task used, as its agent says."""

    input_tokens: int
    """Tokens that the model was given, without those from its cache."""
    output_tokens: int
    """Tokens that the model made."""
    cache_read_tokens: int
    """Tokens that were read from the model's cache."""
    cache_written_tokens: int
    """Tokens that were written to it."""
    turns: int | None
    """How often the model was called, if that is told."""
    cost_usd: float | None
    """US dollars, if that is told."""


@dataclass(frozen=True)
class TaskSummary:
    """What came of a task."""

    wall_ms: int
    """Milliseconds from start to end, or to now."""
    changes: list[TaskChange]
    """Names that changed in granted folders, as far as they are recorded."""
    more_changes: int
    """How many more there are."""
    sets: list[int]
    """The sets of changes, for ``undo``."""
    reached: list[TaskHost]
    """Hosts that were reached."""
    refused: list[TaskRefusal]
    """Hosts that were refused."""
    refused_changes: list[TaskRefusedChange]
    """Changes of files that were refused."""
    requests: list[TaskRequest]
    """What was asked of the user meanwhile."""
    usage: TaskUsage
    """What the agent used."""
    tools: int
    """Uses of tools."""
    failed_tools: int
    """Those that failed or were refused."""
    unknown: list[str]
    """What could not be found out, in sentences."""


@dataclass(frozen=True)
class TaskInfo:
    """A task."""

    number: int
    """Its number in the session."""
    session: str
    """The session."""
    agent: str
    """The agent."""
    model: str | None
    """The model: the wanted one, or the one the agent says it uses."""
    approvals: Approvals
    """What happens when the agent asks whether it may use a tool."""
    prompt: str
    """What the agent is asked to do."""
    attachments: list[str]
    """Files that belong to it: paths below the session's uploads."""
    state: TaskState
    """Where it is in its life."""
    reason: Reason | None
    """Why it failed, was cancelled or interrupted."""
    created: datetime
    """When it was asked."""
    started: datetime | None
    """When the agent began."""
    ended: datetime | None
    """When it was over."""
    command: int | None
    """The number of the command in the session that is, or was, the agent."""
    conversation: str | None
    """The conversation, in the agent's own words: the next task goes on with it."""
    requests: list[int]
    """Requests of the agent that wait for the user."""
    plan: list[PlanStep]
    """What the agent plans to do, as it last said."""
    messages: int
    """The number of its last message."""
    answer: str | None
    """What the agent answered in the end."""
    usage: TaskUsage
    """What it used, as the agent says."""
    summary: TaskSummary | None
    """What came of it, once it is over; before that what has come of it so far, for whoever
    asks.
    """


TaskMessageKind = Literal["user", "text", "thought", "tool", "result", "note"]
"""What a message is.

``user``: the user to the agent: the task, and what was said to steer it. ``text``: the agent
to the user. ``thought``: the agent to itself. ``tool``: the agent uses a tool. ``result``:
what came of it. ``note``: something about the task that the agent did not say.
"""


@dataclass(frozen=True)
class TaskMessage:
    """One message of a task."""

    number: int
    """Its number in the task, from 1, without gaps."""
    task: int
    """The task."""
    time: datetime
    """When it came."""
    kind: TaskMessageKind
    """What it is."""
    text: str
    """What is said: words, the gist of a tool's input, or the beginning of its result.

    It comes from the agent, and may hold anything but control characters other than line
    breaks and tabs.
    """
    failed: bool
    """Whether the use of a tool failed."""
    cut: bool
    """Whether more was said than is kept."""
    call: str | None = None
    """The agent's name for one use of a tool: a result belongs to the use of the same name."""
    tool: str | None = None
    """The tool."""

    def __str__(self) -> str:
        return f"{self.tool}: {self.text}" if self.tool else self.text


AgentSource = Literal["any", "session"]
"""Where the program of an agent is taken from.

``any``: from this host; what was installed in the session where the host has none.
``session``: what was installed in the session, and nothing else.
"""


AgentStep = Literal["run", "install"]
"""What is prepared for an agent.

``run``: that it runs. ``install``: that it is installed in the session: the answer is the
command that does it.
"""
