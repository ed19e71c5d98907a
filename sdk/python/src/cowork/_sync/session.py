# Made by tools/twin.py from _async/session.py; change that.
"""A session: a computer made for an agent, inside this one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

from .. import types
from .._json import decode, present, raw
from .._wire import Call, segment, target
from ..errors import NotFound, Unsupported
from .client import Client
from .parts import Audit, Files, Network, Requests
from .pieces import opening
from .process import Process

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from types import TracebackType

    from .events import Events
    from .parts import Request, Subscription
    from .pieces import Callback

Folder = types.PathName | types.Grant


class Session:
    """A session. One that was made here ends when its context is left; others stay."""

    def __init__(
        self,
        client: Client,
        info: types.SessionInfo,
        *,
        ends: bool = False,
        owned: Client | None = None,
    ) -> None:
        self.id = info.id
        """Its id, e.g. ``zealous-ramanujan``."""
        self.info = info
        """What was last heard of it; see :meth:`status`."""
        self.client = client
        self.files = Files(client, info.id)
        """Its files, from outside."""
        self.network = Network(client, info.id)
        """What it may reach, and what it reaches."""
        self.requests = Requests(client, info.id)
        """What it asks for."""
        self.audit = Audit(client, info.id)
        """What was decided and done about it."""
        self._path = f"/v1/sessions/{info.id}"
        self._ends = ends
        self._owned = owned
        self._subscriptions: list[Subscription] = []

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} ({self.info.state})>"

    # Making one, and finding one.

    @classmethod
    @opening
    def create(
        cls,
        *,
        folders: Iterable[Folder] = (),
        network: types.Network | Iterable[str | types.Rule] | None = None,
        id: str | None = None,
        limits: types.Limits | None = None,
        labels: Mapping[str, str] | None = None,
        profile: Literal["strict", "nested"] = "strict",
        secrets: Iterable[str] = (),
        home: types.PathName | None = None,
        outputs: types.PathName | None = None,
        workspace: str | None = None,
        writes: Mapping[str, object] | None = None,
        debugger: bool = False,
        best_effort: bool = False,
        keep: bool = False,
        client: Client | None = None,
    ) -> Session:
        """Make a session.

        ``folders`` are what it sees of the user's, read-write unless a :class:`cowork.Grant` says
        otherwise. ``network`` are hosts that it may reach, rules, or a :class:`cowork.Network`;
        without it there is no network at all. ``secrets`` are used without being known.
        ``workspace`` is a name at the top of its file system that leads to the first folder.
        ``writes`` is what is allowed where changes are recorded, as in the OpenAPI document. With
        ``best_effort``, limits are good enough that the host can only approximate. With
        ``keep`` it stays when its context is left.
        """
        wanted = network
        if wanted is not None and not isinstance(wanted, types.Network):
            wanted = types.Network(rules=list(wanted))
        reach = None if wanted is None else wanted.body()
        used = list(secrets)
        if used:
            reach = {**(reach or {}), "secrets": [*(wanted.secrets if wanted else []), *used]}
        body = present(
            id=id,
            grants=[as_grant(folder).body() for folder in folders],
            network=reach,
            limits=None if limits is None else limits.body(),
            labels=None if labels is None else dict(labels),
            profile=profile,
            home=None if home is None else raw(types.host_path(home)),
            outputs=None if outputs is None else raw(types.host_path(outputs)),
            workspace=workspace,
            writes=None if writes is None else dict(writes),
            debugger=debugger or None,
            best_effort=best_effort or None,
        )
        asked = client or Client()
        owned = asked if client is None else None
        try:
            info = asked.call(types.SessionInfo, "POST", "/v1/sessions", body)
        except BaseException:
            if owned is not None:
                owned.close()
            raise
        return cls(asked, info, ends=not keep, owned=owned)

    @classmethod
    @opening
    def connect(cls, id: str, *, client: Client | None = None) -> Session:
        """A session that is there. Leaving it as a context does not end it."""
        asked = client or Client()
        owned = asked if client is None else None
        try:
            info = asked.call(types.SessionInfo, "GET", f"/v1/sessions/{segment(id)}")
        except BaseException:
            if owned is not None:
                owned.close()
            raise
        return cls(asked, info, owned=owned)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._ends:
            self.end()
        else:
            self.close()

    def close(self) -> None:
        """Let go of it. It goes on."""
        subscriptions, self._subscriptions = self._subscriptions, []
        for subscription in subscriptions:
            subscription.close()
        if self._owned is not None:
            self._owned.close()

    # Commands.

    @opening
    def exec(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bool = False,
        timeout: types.Span | None = None,
        terminal: types.Size | bool = False,
        umask: int | None = None,
        stdout: Callback[str, object] | None = None,
        stderr: Callback[str, object] | None = None,
        stream: Callback[str, object] | None = None,
        capture: bool = True,
    ) -> Process:
        """Start a command: a text for the shell, or words.

        While its output is read, ``stdout`` and ``stderr`` are called with text as it comes, and
        ``stream`` with each line of either. With ``stdin`` it can be written to; with
        ``terminal`` it has one, of this size. Without ``capture`` its output is not kept here.
        """
        tty: dict[str, str] | None = None
        if terminal:
            tty = dict.fromkeys(("stdin", "stdout", "stderr"), "terminal")
        elif stdin:
            tty = {"stdin": "pipe"}
        size = terminal if isinstance(terminal, types.Size) else types.Size()
        body = present(
            shell=command if isinstance(command, str) else None,
            argv=None if isinstance(command, str) else [raw(word) for word in command],
            cwd=None if cwd is None else raw(cwd),
            env=None if env is None else {name: raw(value) for name, value in env.items()},
            streams=tty,
            size={"columns": size.columns, "rows": size.rows} if terminal else None,
            timeout=types.span(timeout),
            umask=umask,
        )
        listeners: dict[types.StreamName, Any] = {}
        if stdout is not None:
            listeners.update({"stdout": stdout, "terminal": stdout})
        if stderr is not None:
            listeners["stderr"] = stderr
        return Process.start(
            self.client, self.id, body, listeners=listeners, lines=stream, capture=capture
        )

    def run(
        self,
        command: str | Sequence[str],
        *,
        stream: Callback[str, object] | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        input: str | bytes | None = None,
        timeout: types.Span | None = None,
        check: bool = False,
        stdout: Callback[str, object] | None = None,
        stderr: Callback[str, object] | None = None,
    ) -> types.Result:
        """Run a command to its end: a text for the shell, or words.

        ``stream`` is called with each line as it comes, e.g. ``stream=print``. A command whose
        ``timeout`` is over ends with 124. With ``check`` anything but success is an exception.
        If this call is interrupted, so is the command.
        """
        process = self.exec(
            command,
            cwd=cwd,
            env=env,
            stdin=input is not None,
            timeout=timeout,
            stdout=stdout,
            stderr=stderr,
            stream=stream,
        )
        try:
            if input is not None:
                process.feed(input.encode() if isinstance(input, str) else input)
            result = process.wait()
        except BaseException:
            process.abandon()
            raise
        return result.check() if check else result

    def commands(self) -> list[types.Command]:
        """Commands that were started in it."""
        return self.client.every(types.Command, f"{self._path}/commands", {"limit": 1000})

    def output(
        self, number: int, stream: Literal["all", "stdout", "stderr", "terminal"] = "all"
    ) -> bytes:
        """What a command has written, as far as it is kept."""
        where = target(f"{self._path}/commands/{number}/output", {"stream": stream})
        return self.client.transport.call(Call("GET", where))

    # Folders.

    def grants(self) -> list[types.GrantInfo]:
        """Folders that it sees."""
        found: list[Any] = self.client.call(list, "GET", f"{self._path}/grants")
        return decode(list[types.GrantInfo], found)

    def grant(
        self,
        folder: Folder,
        mode: types.Access | None = None,
        *,
        name: str | None = None,
        force: bool = False,
    ) -> types.GrantInfo:
        """Grant a folder to it, while it runs."""
        given = as_grant(folder)
        body = types.Grant(
            given.path, mode or given.mode, name or given.name, force or given.force, given.direct
        ).body()
        return self.client.call(types.GrantInfo, "POST", f"{self._path}/grants", body)

    def revoke(self, name: str) -> types.Revoked:
        """Take a folder away. Processes that hold on to it are killed."""
        where = f"{self._path}/grants/{segment(name)}"
        return self.client.call(types.Revoked, "DELETE", where)

    def regrant(self, name: str, mode: types.Access) -> types.Regranted:
        """Give a granted folder another access."""
        where = f"{self._path}/grants/{segment(name)}"
        return self.client.call(types.Regranted, "PATCH", where, {"access": mode})

    def path(
        self, *, host: types.PathName | None = None, session: str | None = None
    ) -> types.Translated:
        """A path in both views: give it as one of them."""
        query = {"host": None if host is None else types.host_path(host), "session": session}
        return self.client.call(types.Translated, "GET", f"{self._path}/path", query=query)

    # Its life.

    def status(self) -> types.SessionInfo:
        """The session as it is now."""
        return self._heard("GET", "")

    def _heard(
        self, method: Literal["GET", "POST", "PATCH"], what: str, body: object = None
    ) -> types.SessionInfo:
        self.info = self.client.call(types.SessionInfo, method, f"{self._path}{what}", body)
        return self.info

    def pause(self) -> types.SessionInfo:
        """Let all of it stand still."""
        return self._heard("POST", "/pause")

    def resume(self) -> types.SessionInfo:
        """Let it go on."""
        return self._heard("POST", "/resume")

    def cancel(self, grace: types.Span | None = None) -> types.SessionInfo:
        """End everything that runs in it; it is killed after the grace."""
        return self._heard("POST", "/cancel", present(grace=types.span(grace)))

    def stop(self) -> types.SessionInfo:
        """End its processes; its home stays."""
        return self._heard("POST", "/stop")

    def start(self) -> types.SessionInfo:
        """Start it again."""
        return self._heard("POST", "/start")

    def set(
        self, *, labels: Mapping[str, str] | None = None, limits: types.Limits | None = None
    ) -> types.SessionInfo:
        """Replace its labels, or change limits while it runs."""
        body = present(
            labels=None if labels is None else dict(labels),
            limits=None if limits is None else limits.body(),
        )
        return self._heard("PATCH", "", body)

    def end(self, *, keep_outputs: bool = False) -> None:
        """End and remove it, with all that is its own; granted folders stay, of course."""
        query = {"outputs": "keep" if keep_outputs else None}
        try:
            self.client.call(type(None), "DELETE", self._path, query=query)
        except NotFound as error:
            if error.code != "no-session":
                raise
        finally:
            self.close()

    def usage(self) -> types.Usage:
        """What it uses now."""
        return self.client.call(types.Usage, "GET", f"{self._path}/usage")

    # What it asks for, and what happens in it.

    def on_request(self, callback: Callback[Request, types.Decision | object]) -> Subscription:
        """Answer what it asks for by a callback, until the session is left or this is closed.

        The callback decides, e.g. by ``request.reject_once()``, or gives a decision back as a
        text. It is called beside whatever else goes on.
        """
        subscription = self.requests.subscribe(callback)
        self._subscriptions.append(subscription)
        return subscription

    def events(self, *, type: str | None = None, after: int | None = None) -> Events:
        """What happens to it; after event number ``after``, else from now on."""
        return self.client.events(session=self.id, type=type, after=after)

    # What it changed.

    def changes(
        self, path: types.PathName | None = None, *, set: int | None = None
    ) -> types.Changes:
        """What changed in its granted folders: all, or below a path, or in one set."""
        query = {"path": None if path is None else str(path), "set": set}
        return decode(types.Changes, self._offered("GET", "/changes", query=query))

    def diff(
        self, path: types.PathName | None = None, *, set: int | None = None
    ) -> list[types.Difference]:
        """The differences of contents: all, or below a path, or in one set."""
        query = {"path": None if path is None else str(path), "set": set}
        found = self._offered("GET", "/diff", query=query)
        return decode(list[types.Difference], found)

    def undo(
        self,
        paths: Iterable[str] = (),
        *,
        sets: Iterable[int] = (),
        all: bool = False,
        on_conflict: Literal["refuse", "ours", "theirs", "both"] = "refuse",
        dry_run: bool = False,
    ) -> types.Restored:
        """Take changes back: those of the last set, unless paths, sets or all are named."""
        body = {
            "paths": [raw(path) for path in paths],
            "sets": list(sets),
            "all": all,
            "on_conflict": on_conflict,
            "dry_run": dry_run,
        }
        return decode(types.Restored, self._offered("POST", "/undo", body))

    def redo(
        self,
        *,
        on_conflict: Literal["refuse", "ours", "theirs", "both"] = "refuse",
        dry_run: bool = False,
    ) -> types.Restored:
        """Take the last undo back."""
        body = {"on_conflict": on_conflict, "dry_run": dry_run}
        return decode(types.Restored, self._offered("POST", "/redo", body))

    def apply(
        self,
        paths: Iterable[str] = (),
        *,
        on_conflict: Literal["refuse", "ours", "theirs", "both"] = "refuse",
        dry_run: bool = False,
    ) -> types.Restored:
        """Carry staged changes over into their folders: all, or those below paths."""
        body = {
            "paths": [raw(path) for path in paths],
            "on_conflict": on_conflict,
            "dry_run": dry_run,
        }
        return decode(types.Restored, self._offered("POST", "/apply", body))

    def discard(self, paths: Iterable[str] = ()) -> types.Discarded:
        """Throw staged changes away: all, or those of granted folders."""
        body = {"paths": [raw(path) for path in paths]}
        return decode(types.Discarded, self._offered("POST", "/discard", body))

    def ask(self, prompt: str) -> types.Result:  # noqa: ARG002 - what will be asked
        """Let an agent work on a prompt. No daemon offers this yet."""
        raise Unsupported(
            "this version of cowork cannot ask an agent",
            code="no-tasks",
            detail=f"it would be `POST {self._path}/tasks`, for which there is no definition yet",
            hint='run the agent as a command: `session.run(["claude", "-p", prompt])`',
        )

    def _offered(
        self,
        method: Literal["GET", "POST"],
        what: str,
        body: object = None,
        query: Mapping[str, object] | None = None,
    ) -> Any:
        try:
            return self.client.call(object, method, f"{self._path}{what}", body, query)
        except NotFound as error:
            if error.code != "no-route":
                raise
            raise Unsupported(
                "the daemon keeps no changes",
                code="no-changes",
                detail=f"it has no `{method} {self._path}{what}`",
                hint="install a newer version of cowork",
            ) from error


def as_grant(folder: Folder) -> types.Grant:
    """Take a path as a folder to grant read-write."""
    return folder if isinstance(folder, types.Grant) else types.Grant(folder)
