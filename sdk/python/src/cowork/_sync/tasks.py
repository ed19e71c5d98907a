# Made by tools/twin.py from _async/tasks.py; change that.
"""What agents are asked to do in a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from .. import types
from .._json import present
from ..errors import Conflict
from .pieces import call

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from .client import Client
    from .events import Events
    from .pieces import Callback

OVER = {"done", "failed", "cancelled", "interrupted"}
"""States in which nothing more comes of a task."""


class Task:
    """A task of an agent's.

    Its messages are read by iterating, or by :meth:`wait`. If the daemon is replaced meanwhile,
    none is missed and none comes twice. Leaving it as a context cancels it if it is not over.
    """

    def __init__(
        self,
        client: Client,
        info: types.TaskInfo,
        *,
        stream: Callback[types.TaskMessage, object] | None = None,
    ) -> None:
        self.info = info
        """What was last heard of it; see :meth:`status`."""
        self.number = info.number
        """Its number in the session."""
        self._client = client
        self._path = f"/v1/sessions/{info.session}/tasks/{info.number}"
        self._stream = stream
        self._events: Events | None = None
        self._seen: list[types.TaskMessage] = []
        self._waiting: list[types.TaskMessage] = []
        self._last = 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.info.session} {self.number} ({self.info.state})>"

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> types.TaskMessage:
        message = self._next()
        if message is None:
            raise StopIteration
        return message

    def _next(self) -> types.TaskMessage | None:
        while not self._waiting:
            if self._is_read:
                self._let_go()
                return None
            if self._events is None:
                # It is listened to before it is looked at, so that nothing falls in between.
                events = self._client.events(session=self.info.session, type="task")
                self._events = events.open()
            elif not self._is_over and not self._is_news(next(self._events)):
                continue
            self._look()
        message = self._waiting.pop(0)
        self._seen.append(message)
        if self._stream is not None:
            call(self._stream, message)
        return message

    @property
    def _is_over(self) -> bool:
        return self.info.state in OVER

    @property
    def _is_read(self) -> bool:
        return self._is_over and self._last >= self.info.messages

    def _is_news(self, event: types.Event) -> bool:
        """Whether an event says something about this task that is not known yet."""
        if event.type == "gap" or not isinstance(event.data, dict):
            return True
        message = event.data.get("message")
        told = message.get("number", 0) if isinstance(message, dict) else self._last + 1
        return event.data.get("task") == self.number and told > self._last

    def _look(self) -> None:
        """Read what is new: the task first, so that its last message is there if it is over."""
        self.status()
        self._waiting += self.messages(after=self._last)
        if self._waiting:
            self._last = self._waiting[-1].number

    def messages(self, *, after: int = 0) -> list[types.TaskMessage]:
        """What was said and done, from the beginning or after a number."""
        query = {"after": after, "limit": 1000}
        return self._client.every(types.TaskMessage, f"{self._path}/messages", query)

    def wait(self, *, check: bool = True) -> types.Answer:
        """Wait for its end, and give the agent's answer with all that was said and done."""
        while self._next() is not None:
            pass
        answer = types.Answer(self.info, list(self._seen))
        return answer.check() if check else answer

    def status(self, *, so_far: bool = False) -> types.TaskInfo:
        """The task as it is now.

        With ``so_far`` it has a summary before it is over: of what it has changed, reached, been
        refused and asked until now.
        """
        query = {"so_far": "true"} if so_far else None
        self.info = self._client.call(types.TaskInfo, "GET", self._path, query=query)
        return self.info

    def steer(self, prompt: str) -> types.TaskInfo:
        """Say something to the agent while it works."""
        return self._heard("steer", {"prompt": prompt})

    def pause(self) -> types.TaskInfo:
        """Let it stand still."""
        return self._heard("pause")

    def resume(self) -> types.TaskInfo:
        """Let it go on."""
        return self._heard("resume")

    def cancel(self) -> types.TaskInfo:
        """Call it off."""
        return self._heard("cancel")

    def _heard(self, what: str, body: object = None) -> types.TaskInfo:
        self.info = self._client.call(types.TaskInfo, "POST", f"{self._path}/{what}", body)
        return self.info

    def abandon(self) -> None:
        """Call it off if it is not over, and let go of it."""
        try:
            if not self._is_over:
                self.cancel()
        except Conflict:
            self.status()
        finally:
            self._let_go()

    def _let_go(self) -> None:
        events, self._events = self._events, None
        if events is not None:
            events.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.abandon()


Infos = list[types.TaskInfo]


class Tasks:
    """The tasks of a session: several are done in their order, by agents that stay."""

    def __init__(self, client: Client, session: str) -> None:
        self._client = client
        self._path = f"/v1/sessions/{session}/tasks"

    def list(self) -> Infos:
        """Every task of the session."""
        return self._client.every(types.TaskInfo, self._path, {"limit": 1000})

    def get(self, number: int) -> Task:
        """A task, by its number."""
        info = self._client.call(types.TaskInfo, "GET", f"{self._path}/{number}")
        return Task(self._client, info)

    def create(
        self,
        prompt: str,
        *,
        agent: str | types.Agent | None = None,
        model: str | None = None,
        approvals: types.Approvals | None = None,
        attachments: Iterable[str] = (),
        stream: Callback[types.TaskMessage, object] | None = None,
        key: str | None = None,
    ) -> Task:
        """Ask an agent to do something, and do not wait for it.

        ``attachments`` are paths below the session's ``uploads``.
        """
        wanted = types.as_agent(agent)
        body = present(
            prompt=prompt,
            agent=wanted.name,
            launch=wanted.launch(),
            model=model,
            approvals=approvals,
            attachments=list(attachments) or None,
        )
        info = self._client.call(types.TaskInfo, "POST", self._path, body, key=key)
        return Task(self._client, info, stream=stream)
