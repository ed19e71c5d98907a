"""One machine that stays, by name, for programs that were written for a virtual machine.

The machine is a session: it is made at the first use, found again by its name, and kept until
:meth:`CoworkController.destroy`. There is no virtual machine behind it, and nothing to boot.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Self

from .. import types
from .._sync.client import Client
from .._sync.session import Session
from ..errors import InvalidRequest, NotFound

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from .._sync.pieces import Callback


@dataclass(frozen=True)
class SandboxConfig:
    """How the machine is to be.

    ``working_dir`` is the folder that commands start in, a name at the top of the machine's file
    system; ``folder`` is the folder of the host that lies there, made if it is missing. Limits are
    kept as well as the host can. With ``keep=False`` a machine that was made here ends with the
    controller.
    """

    vm_name: str = "sandbox"
    working_dir: str = "/workspace"
    folder: types.PathName = "~/cowork-workspace"
    network: types.Network | Sequence[str | types.Rule] | None = None
    folders: Sequence[types.PathName | types.Grant] = ()
    limits: types.Limits = field(default_factory=types.Limits)
    env: Mapping[str, str] = field(default_factory=dict)
    timeout: types.Span | None = None
    agent: str | types.Agent = "claude"
    keep: bool = True


@dataclass(frozen=True)
class VmInfo:
    """The machine as it is now."""

    name: str
    state: str
    running: bool
    working_dir: str
    folder: str
    pid: int | None
    limits: dict[str, str]
    session: types.SessionInfo = field(repr=False)


class CoworkController:
    """Controls one machine."""

    def __init__(
        self, config: SandboxConfig | None = None, *, client: Client | None = None
    ) -> None:
        self.config = config or SandboxConfig()
        parts = PurePosixPath(self.config.working_dir).parts
        if len(parts) != 2 or parts[0] != "/":
            raise InvalidRequest(
                f"`{self.config.working_dir}` is not a name at the top of the file system",
                code="bad-workspace",
                status=422,
                hint="e.g. `/workspace`",
            )
        self._workspace = parts[1]
        self._client = client or Client()
        self._owned = client is None
        self._session: Session | None = None
        self._made = False

    @property
    def session(self) -> Session:
        """The session behind it, which runs; it is made or started first if need be."""
        if self._session is None:
            self._session = self._find() or self._make()
        if self._session.info.state in {"stopped", "failed"}:
            self._session.start()
        return self._session

    def _find(self) -> Session | None:
        try:
            return self._client.connect(self.config.vm_name)
        except NotFound as error:
            if error.code != "no-session":
                raise
            return None

    def _make(self) -> Session:
        folder = Path(self.config.folder).expanduser()
        folder.mkdir(parents=True, exist_ok=True)
        self._made = True
        return Session.create(
            id=self.config.vm_name,
            folders=[types.Grant(folder, name=self._workspace), *self.config.folders],
            workspace=self._workspace,
            network=self.config.network,
            limits=self.config.limits,
            best_effort=True,
            client=self._client,
        )

    def get_vm_info(self) -> VmInfo:
        """The machine as it is now."""
        info = self.session.status()
        granted = {grant.name: grant.path for grant in info.grants}
        return VmInfo(
            name=info.id,
            state=info.state,
            running=info.state in {"ready", "running"},
            working_dir=self.config.working_dir,
            folder=granted.get(self._workspace, str(self.config.folder)),
            pid=info.sandbox.pid if info.sandbox else None,
            limits={limit.limit: limit.value for limit in info.limits},
            session=info,
        )

    def execute_in_vm(
        self,
        command: str | Sequence[str],
        *,
        timeout: types.Span | None = None,
        env: Mapping[str, str] | None = None,
        stream: Callback[str, object] | None = None,
    ) -> types.Result:
        """Run a command in the working folder.

        The result has ``output``, ``exit_code``, ``stdout``, ``stderr`` and ``duration``.
        """
        return self.session.run(
            command,
            cwd=self.config.working_dir,
            env={**self.config.env, **(env or {})},
            timeout=timeout if timeout is not None else self.config.timeout,
            stream=stream,
        )

    def ask_claude(
        self,
        prompt: str,
        *,
        approvals: types.Approvals = "auto",
        stream: Callback[types.TaskMessage, object] | None = None,
        check: bool = True,
    ) -> types.Answer:
        """Let Claude do something in the machine.

        The result has ``output``, ``exit_code``, ``duration``, ``plan``, ``messages``, ``usage``
        and ``summary``. It may use its tools, within what the machine may do; see
        :meth:`cowork.Session.ask`.
        """
        return self.session.ask(
            prompt, agent=self.config.agent, approvals=approvals, stream=stream, check=check
        )

    def stop(self) -> None:
        """End the machine's processes. Its files stay, and the next use starts it again."""
        self.session.stop()

    def destroy(self) -> None:
        """Remove the machine. The folder of the host stays."""
        session = self._session or self._find()
        self._session = None
        if session is not None:
            session.end()

    def close(self) -> None:
        """Let go of the machine, which goes on if it is to be kept."""
        if self._made and not self.config.keep:
            self.destroy()
        if self._owned:
            self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
