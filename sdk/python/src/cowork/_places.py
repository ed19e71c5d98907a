"""Where the daemon of this user is found, and how it is started.

The rules are those of the programs, so that all of them meet at the same socket. The runtime folder
is one of this user's that nobody else can enter, and no link: whoever could put a socket there
could answer in the daemon's place.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import DaemonUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_SOCKET_PATH = 108
"""Longest path of a socket, its final zero included (unix(7))."""

SYSTEM_STATE = Path("/var/lib/cowork")
"""The state folder of the system's daemon, which its unit has made."""

START = 10.0
"""Longest time that a daemon may take to answer after its start."""

OTHER = 1.0
"""Longest wait for a daemon that somebody else started, after ours has left because of it."""


@dataclass(frozen=True)
class Place:
    """Where a daemon is, or will be."""

    runtime: Path
    program: Path | None
    """The program to start it with; looked for if there is none."""
    start: bool
    """Whether it is started if it does not run."""

    @property
    def socket(self) -> str:
        """The daemon's socket."""
        return str(self.runtime / "api.sock")

    @property
    def log(self) -> Path:
        """What the daemon says when nobody listens."""
        return self.runtime / "coworkd.log"


def place(
    runtime: str | os.PathLike[str] | None = None,
    program: str | os.PathLike[str] | None = None,
    *,
    start: bool = True,
) -> Place:
    """Find the runtime folder; it is made if it is missing and refused if it cannot be trusted."""
    path = Path(runtime) if runtime is not None else _runtime()
    if not path.is_absolute():
        raise DaemonUnavailable(
            f"the runtime folder `{path}` is not an absolute path", code="bad-place"
        )
    if len(os.fsencode(path)) + len("/api.sock") >= MAX_SOCKET_PATH:
        raise DaemonUnavailable(
            f"the runtime folder `{path}` has too long a path for a socket", code="bad-place"
        )
    _trust(path)
    return Place(path, None if program is None else Path(program), start)


def _runtime() -> Path:
    own = os.environ.get("COWORK_RUNTIME_DIR")
    if own:
        return Path(own)
    user = os.geteuid()
    if user == 0 and not os.environ.get("COWORK_STATE_DIR") and _is_folder_of(SYSTEM_STATE, user):
        return Path("/run/cowork")
    session = os.environ.get("XDG_RUNTIME_DIR")
    if session and Path(session).is_absolute():
        return Path(session) / "cowork"
    if user == 0:
        return Path("/run/cowork")
    login = Path(f"/run/user/{user}")
    if _is_folder_of(login, user):
        return login / "cowork"
    return Path(f"/tmp/cowork-{user}")  # noqa: S108 - it is used only if it is this user's


def _is_folder_of(path: Path, user: int) -> bool:
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == user


def _trust(path: Path) -> None:
    def untrusted(why: str) -> DaemonUnavailable:
        sentence = f"the runtime folder `{path}` cannot be trusted: {why}"
        return DaemonUnavailable(sentence, code="bad-place")

    try:
        try:
            path.mkdir(mode=0o700)
            made = True
        except FileExistsError:
            made = False
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except NotADirectoryError:
        raise untrusted("it is not a folder, or a link") from None
    except OSError as error:
        sentence = f"cannot use the runtime folder `{path}`"
        raise DaemonUnavailable(sentence, code="bad-place", detail=error.strerror) from error
    try:
        found = os.fstat(folder)
        if found.st_uid != os.geteuid():
            raise untrusted("it belongs to another user")
        if made:
            os.fchmod(folder, 0o700)
        elif stat.S_IMODE(found.st_mode) != 0o700:
            raise untrusted("its permissions are not 0700")
    finally:
        os.close(folder)


def find_program(named: Path | None = None) -> Path:
    """Find `cowork`, else `coworkd`.

    It is what was named, else what `COWORK_BIN` names (the program, or the folder that it is in),
    else what is on `PATH`.
    """
    variable = os.environ.get("COWORK_BIN")
    if named is None and variable:
        named = Path(variable).expanduser()
    if named is None:
        found = shutil.which("cowork") or shutil.which("coworkd")
        if found is None:
            raise DaemonUnavailable(
                "no daemon runs, and there is no program to start one with",
                code="no-program",
                hint="put `cowork` on PATH, or name it in COWORK_BIN",
            )
        return Path(found)
    candidates = [named / "cowork", named / "coworkd"] if named.is_dir() else [named]
    for candidate in candidates:
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return candidate.absolute()
    raise DaemonUnavailable(
        f"no daemon runs, and `{named}` is no program to start one with",
        code="no-program",
        hint="COWORK_BIN names the program `cowork`, or the folder that it is in",
    )


def start(place: Place, answers: Callable[[], bool]) -> None:
    """Start the daemon and wait until it answers."""
    if not place.start:
        raise DaemonUnavailable(
            f"no daemon answers at `{place.socket}`",
            code="not-running",
            hint="start one with `cowork daemon`",
        )
    program = find_program(place.program)
    words = [str(program)] if program.name == "coworkd" else [str(program), "daemon", "--detached"]
    try:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        log = os.open(place.log, flags, 0o600)
    except OSError as error:
        sentence = f"cannot write the daemon's log `{place.log}`"
        raise DaemonUnavailable(sentence, code="no-log", detail=error.strerror) from error
    try:
        before = os.fstat(log).st_size
        child = subprocess.Popen(
            words,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=program.name == "coworkd",
        )
    except OSError as error:
        sentence = f"cannot start `{program}`"
        raise DaemonUnavailable(sentence, code="not-started", detail=error.strerror) from error
    finally:
        os.close(log)
    try:
        _await(place, child, before, answers)
    finally:
        # It is waited for whenever it leaves, so that nothing of it stays in the process table.
        threading.Thread(target=child.wait, name="cowork-daemon", daemon=True).start()


def _await(
    place: Place, child: subprocess.Popen[bytes], before: int, answers: Callable[[], bool]
) -> None:
    end = time.monotonic() + START
    pause = 0.001
    left = False
    while not answers():
        now = time.monotonic()
        if now >= end:
            sentence = (
                "the daemon ended right after its start"
                if left
                else f"the daemon did not answer within {START:.0f} seconds of its start"
            )
            raise DaemonUnavailable(
                sentence,
                code="not-started",
                detail=_last_line(place.log, before),
                hint=f"its log is `{place.log}`",
            )
        if not left and child.poll() is not None:
            left = True
            end = min(end, now + OTHER)
        time.sleep(pause)
        pause = min(pause * 2, 0.005)


def _last_line(log: Path, before: int) -> str | None:
    """The last line of the log since this start."""
    with log.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(before, size - 64 * 1024))
        lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].removeprefix("coworkd: ") if lines else None
