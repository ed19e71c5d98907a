"""What came of a command, and of a task."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from ..errors import CommandFailed, CommandTimeout, TaskFailed
from .commands import Command, Reason
from .tasks import PlanStep, TaskInfo, TaskMessage, TaskSummary, TaskUsage

__all__ = ["Answer", "Output", "Result", "StreamName"]

StreamName = Literal["stdout", "stderr", "terminal"]
"""Where a piece of output comes from."""


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
class Answer:
    """What an agent answered, and what it said and did on the way."""

    task: TaskInfo
    messages: list[TaskMessage] = field(repr=False)

    @property
    def ok(self) -> bool:
        """Whether the agent has answered."""
        return self.task.state == "done"

    @property
    def output(self) -> str:
        """The answer; nothing if there is none."""
        return self.task.answer or ""

    @property
    def exit_code(self) -> int:
        """0 if the agent has answered, otherwise 1."""
        return 0 if self.ok else 1

    @property
    def reason(self) -> Reason | None:
        """Why there is no answer."""
        return self.task.reason

    @property
    def plan(self) -> list[PlanStep]:
        """What the agent planned to do, as it last said."""
        return self.task.plan

    @property
    def usage(self) -> TaskUsage:
        """What it used, as the agent says."""
        return self.task.usage

    @property
    def summary(self) -> TaskSummary | None:
        """What changed, what was reached, what was refused and asked."""
        return self.task.summary

    @property
    def duration(self) -> float:
        """Seconds from its start to its end."""
        if self.task.summary is not None:
            return self.task.summary.wall_ms / 1000
        started = self.task.started or self.task.created
        return ((self.task.ended or started) - started).total_seconds()

    def check(self) -> Answer:
        """Raise an exception unless the agent has answered."""
        if self.ok:
            return self
        why = f": {self.reason.sentence}" if self.reason else ""
        code = self.reason.code if self.reason else self.task.state
        raise TaskFailed(f"task {self.task.number} is {self.task.state}{why}", self, code=code)
