"""A session: a computer made for an agent, inside this one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from .. import types
from .._json import decode, plain, present, raw
from .._wire import Call, segment, target
from ..errors import NotFound
from .changes import AsyncChanged, AsyncProtected
from .client import AsyncClient
from .files import AsyncFiles
from .network import AsyncNetwork
from .pieces import opening
from .process import AsyncProcess
from .records import AsyncAudit
from .requests import AsyncRequests
from .tasks import AsyncTasks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from types import TracebackType

    from .events import AsyncEvents
    from .pieces import Callback
    from .requests import AsyncRequest, AsyncSubscription

Folder = types.PathName | types.Grant


class AsyncSession(AsyncChanged):
    """A session. One that was made here ends when its context is left; others stay."""

    def __init__(
        self,
        client: AsyncClient,
        info: types.SessionInfo,
        *,
        ends: bool = False,
        owned: AsyncClient | None = None,
        agent: str | types.Agent | None = None,
    ) -> None:
        super().__init__(client, info.id)
        self.info = info
        """What was last heard of it; see :meth:`status`."""
        self.files = AsyncFiles(client, info.id)
        """Its files, from outside."""
        self.network = AsyncNetwork(client, info.id)
        """What it may reach, and what it reaches."""
        self.requests = AsyncRequests(client, info.id)
        """What it asks for."""
        self.audit = AsyncAudit(client, info.id)
        """What was decided and done about it."""
        self.protected = AsyncProtected(client, info.id)
        """Names that it may not simply change."""
        self.tasks = AsyncTasks(client, info.id)
        """What agents are asked to do in it."""
        self._agent = agent
        self._ends = ends
        self._owned = owned
        self._subscriptions: list[AsyncSubscription] = []

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} ({self.info.state})>"

    # Making one, and finding one.

    @classmethod
    @opening
    async def create(
        cls,
        *,
        folders: Iterable[Folder] = (),
        network: types.Network | Iterable[str | types.Rule] | None = None,
        agent: str | types.Agent | None = None,
        id: str | None = None,
        limits: types.Limits | None = None,
        labels: Mapping[str, str] | None = None,
        profile: types.Profile = "strict",
        life: types.Life = "kept",
        secrets: Iterable[str | types.OwnSecret] = (),
        home: types.PathName | None = None,
        outputs: types.PathName | None = None,
        skills: types.PathName | None = None,
        workspace: str | None = None,
        writes: types.Writes | None = None,
        protect: Iterable[types.PlaceName] = (),
        view: types.View | None = None,
        debugger: bool = False,
        best_effort: bool = False,
        keep: bool = False,
        key: str | None = None,
        client: AsyncClient | None = None,
    ) -> AsyncSession:
        """Make a session.

        ``folders`` are what it sees of the user's, read-write unless a :class:`cowork.Grant` says
        otherwise. ``network`` are hosts that it may reach, rules, or a :class:`cowork.Network`;
        without it there is no network at all. ``agent`` is the one that :meth:`ask` asks, see
        :meth:`cowork.Client.agents`; with it the session is given what that agent needs at once.
        ``secrets`` are used without being known: kept ones by their names, or its own.

        ``workspace`` is a name at the top of its file system that leads to the first folder.
        ``skills`` is a folder that it sees read-only as ``mnt/skills``.
        ``writes`` is what is allowed where changes are recorded, ``protect`` are rules about names
        there. ``view`` shows the host's files at their own paths, read-only but for what it names.
        With ``best_effort``, limits are good enough that the host can only approximate.

        With ``keep`` it stays when its context is left; with ``life="once"`` it ends with its first
        command, and its home is in memory. ``key`` is any text: calls with the same one make one
        session, so that a call whose connection broke is repeated.
        """
        wanted = network
        if wanted is not None and not isinstance(wanted, types.Network):
            wanted = types.Network(rules=list(wanted))
        reach = None if wanted is None else wanted.body()
        chosen = list(secrets)
        used = [secret for secret in chosen if isinstance(secret, str)]
        own = [secret.body() for secret in chosen if not isinstance(secret, str)]
        if used:
            reach = {**(reach or {}), "secrets": [*(wanted.secrets if wanted else []), *used]}
        body = present(
            id=id,
            grants=[types.as_grant(folder).body() for folder in folders],
            network=reach,
            limits=None if limits is None else limits.body(),
            labels=None if labels is None else dict(labels),
            profile=profile,
            life=life,
            home=None if home is None else raw(types.host_path(home)),
            outputs=None if outputs is None else raw(types.host_path(outputs)),
            skills=None if skills is None else {"path": raw(types.host_path(skills))},
            workspace=workspace,
            secrets=own or None,
            writes=None if writes is None else plain(writes),
            protect=[plain(name) for name in protect] or None,
            view=None if view is None else plain(view),
            debugger=debugger or None,
            best_effort=best_effort or None,
        )
        asked = client or AsyncClient()
        owned = asked if client is None else None
        try:
            info = await asked.call(types.SessionInfo, "POST", "/v1/sessions", body, key=key)
        except BaseException:
            if owned is not None:
                await owned.aclose()
            raise
        session = cls(asked, info, ends=not keep, owned=owned, agent=agent)
        if agent is not None:
            try:
                await session.prepare(agent)
            except BaseException:
                await session.end()
                raise
        return session

    @classmethod
    @opening
    async def connect(cls, id: str, *, client: AsyncClient | None = None) -> AsyncSession:
        """A session that is there. Leaving it as a context does not end it."""
        asked = client or AsyncClient()
        owned = asked if client is None else None
        try:
            info = await asked.call(types.SessionInfo, "GET", f"/v1/sessions/{segment(id)}")
        except BaseException:
            if owned is not None:
                await owned.aclose()
            raise
        return cls(asked, info, owned=owned)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._ends:
            await self.end()
        else:
            await self.aclose()

    async def aclose(self) -> None:
        """Let go of it. It goes on."""
        subscriptions, self._subscriptions = self._subscriptions, []
        for subscription in subscriptions:
            await subscription.aclose()
        if self._owned is not None:
            await self._owned.aclose()

    # Commands.

    @opening
    async def exec(
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
    ) -> AsyncProcess:
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
        return await AsyncProcess.start(
            self.client, self.id, body, listeners=listeners, lines=stream, capture=capture
        )

    async def run(
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
        process = await self.exec(
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
                await process.feed(input.encode() if isinstance(input, str) else input)
            result = await process.wait()
        except BaseException:
            await process.abandon()
            raise
        return result.check() if check else result

    async def attach(
        self, number: int, *, stream: Callback[str, object] | None = None
    ) -> AsyncProcess:
        """A command that was started, by its number: with all it wrote that is kept."""
        return await AsyncProcess.attach(self.client, self.id, number, lines=stream)

    async def commands(self) -> list[types.Command]:
        """Commands that were started in it."""
        return await self.client.every(types.Command, f"{self._path}/commands", {"limit": 1000})

    async def output(
        self, number: int, stream: Literal["all", "stdout", "stderr", "terminal"] = "all"
    ) -> bytes:
        """What a command has written, as far as it is kept."""
        where = target(f"{self._path}/commands/{number}/output", {"stream": stream})
        return await self.client.transport.call(Call("GET", where))

    # Folders.

    async def grants(self) -> list[types.GrantInfo]:
        """Folders that it sees."""
        found: list[Any] = await self.client.call(list, "GET", f"{self._path}/grants")
        return decode(list[types.GrantInfo], found)

    async def granted(self, name: str) -> types.GrantInfo:
        """One folder that it sees, by its name in the session."""
        where = f"{self._path}/grants/{segment(name)}"
        return await self.client.call(types.GrantInfo, "GET", where)

    async def grant(
        self,
        folder: Folder,
        mode: types.Access | None = None,
        *,
        name: str | None = None,
        force: bool = False,
    ) -> types.GrantInfo:
        """Grant a folder to it, while it runs."""
        given = types.as_grant(folder)
        body = replace(
            given,
            mode=mode or given.mode,
            name=name or given.name,
            force=force or given.force,
        ).body()
        return await self.client.call(types.GrantInfo, "POST", f"{self._path}/grants", body)

    async def revoke(self, name: str) -> types.Revoked:
        """Take a folder away. Processes that hold on to it are killed."""
        where = f"{self._path}/grants/{segment(name)}"
        return await self.client.call(types.Revoked, "DELETE", where)

    async def regrant(
        self, name: str, mode: types.Access, *, writes: types.Writes | None = None
    ) -> types.Regranted:
        """Give a granted folder another access, while it runs."""
        where = f"{self._path}/grants/{segment(name)}"
        body = present(access=mode, writes=None if writes is None else plain(writes))
        return await self.client.call(types.Regranted, "PATCH", where, body)

    async def path(
        self, *, host: types.PathName | None = None, session: str | None = None
    ) -> types.Translated:
        """A path in both views: give it as one of them."""
        query = {"host": None if host is None else types.host_path(host), "session": session}
        return await self.client.call(types.Translated, "GET", f"{self._path}/path", query=query)

    # Its life.

    async def status(self) -> types.SessionInfo:
        """The session as it is now."""
        return await self._heard("GET", "")

    async def _heard(
        self, method: Literal["GET", "POST", "PATCH"], what: str, body: object = None
    ) -> types.SessionInfo:
        self.info = await self.client.call(types.SessionInfo, method, f"{self._path}{what}", body)
        return self.info

    async def pause(self) -> types.SessionInfo:
        """Let all of it stand still."""
        return await self._heard("POST", "/pause")

    async def resume(self) -> types.SessionInfo:
        """Let it go on."""
        return await self._heard("POST", "/resume")

    async def cancel(self, grace: types.Span | None = None) -> types.SessionInfo:
        """End everything that runs in it; it is killed after the grace."""
        return await self._heard("POST", "/cancel", present(grace=types.span(grace)))

    async def stop(self) -> types.SessionInfo:
        """End its processes; its home stays."""
        return await self._heard("POST", "/stop")

    async def start(self) -> types.SessionInfo:
        """Start it again."""
        return await self._heard("POST", "/start")

    async def set(
        self, *, labels: Mapping[str, str] | None = None, limits: types.Limits | None = None
    ) -> types.SessionInfo:
        """Replace its labels, or change limits while it runs."""
        body = present(
            labels=None if labels is None else dict(labels),
            limits=None if limits is None else limits.body(),
        )
        return await self._heard("PATCH", "", body)

    async def end(self, *, keep_outputs: bool = False) -> None:
        """End and remove it, with all that is its own; granted folders stay, of course."""
        query = {"outputs": "keep" if keep_outputs else None}
        try:
            await self.client.call(type(None), "DELETE", self._path, query=query)
        except NotFound as error:
            if error.code != "no-session":
                raise
        finally:
            await self.aclose()

    async def processes(
        self, name: str | None = None, *, pid: int | None = None
    ) -> list[types.ProcessInfo]:
        """Its processes with this name, and with this id in the session or on the host."""
        path, query = f"{self._path}/processes", {"name": name, "pid": pid}
        found = await self.client.call(types.Processes, "GET", path, query=query)
        return found.processes

    async def usage(self) -> types.Usage:
        """What it uses now."""
        return await self.client.call(types.Usage, "GET", f"{self._path}/usage")

    async def usage_history(self) -> list[types.Usage]:
        """What it used, the oldest first."""
        where = f"{self._path}/usage/history"
        return await self.client.every(types.Usage, where, {"limit": 1000})

    # Agents.

    async def ask(
        self,
        prompt: str,
        *,
        stream: Callback[types.TaskMessage, object] | None = None,
        agent: str | types.Agent | None = None,
        model: str | None = None,
        approvals: types.Approvals | None = None,
        attachments: Iterable[types.PathName] = (),
        check: bool = True,
    ) -> types.Answer:
        """Let an agent do something, and wait for its answer.

        ``stream`` is called with each message as it comes: what the agent says, which tools it
        uses. With ``approvals="ask"`` each tool that it wants to use is a request, see
        :meth:`on_request`; ``"auto"`` allows all, within what the session may do anyway.
        ``attachments`` are files of the host; they are copied to ``uploads``. Unless
        ``check=False``, anything but an answer is a :class:`cowork.TaskFailed`. If this call is
        interrupted, so is the task.
        """
        names: list[str] = []
        for source in attachments:
            await self.files.upload(source)
            names.append(Path(source).name)
        task = await self.tasks.create(
            prompt,
            agent=agent or self._agent,
            model=model,
            approvals=approvals,
            attachments=names,
            stream=stream,
        )
        try:
            return await task.wait(check=check)
        except BaseException:
            await task.abandon()
            raise

    async def prepare(
        self, agent: str | types.Agent | None = None, *, install: bool = False
    ) -> types.PreparedAgent:
        """Give the session what an agent needs, and say how it is started.

        With ``install``, it is the command that installs the agent in the session.
        """
        wanted = types.as_agent(agent or self._agent)
        body = {**wanted.launch(), "step": "install" if install else "run"}
        where = f"{self._path}/agents/{segment(wanted.name)}"
        return await self.client.call(types.PreparedAgent, "POST", where, body)

    # What it asks for, and what happens in it.

    async def on_request(
        self, callback: Callback[AsyncRequest, types.Decision | object]
    ) -> AsyncSubscription:
        """Answer what it asks for by a callback, until the session is left or this is closed.

        The callback decides, e.g. by ``request.reject_once()``, or gives a decision back as a
        text. It is called beside whatever else goes on.
        """
        subscription = await self.requests.subscribe(callback)
        self._subscriptions.append(subscription)
        return subscription

    def events(self, *, type: str | None = None, after: int | None = None) -> AsyncEvents:
        """What happens to it; after event number ``after``, else from now on."""
        return self.client.events(session=self.id, type=type, after=after)

    async def boundary(self) -> None:
        """Let what follows be a new set of changes, also of a command that goes on."""
        await self.client.call(type(None), "POST", f"{self._path}/boundary")
