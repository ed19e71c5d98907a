"""A daemon of the tests' own, folders, sessions, and an agent. Nothing is skipped.

``COWORK_PROGRAMS`` is the folder with the programs under test. The tests run as whoever starts
them; ``tools/ci.py`` starts them as root and as an ordinary user.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cowork import Client, CoworkError, Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_NUMBERS = itertools.count()


def pytest_configure() -> None:
    found = os.environ.get("COWORK_PROGRAMS")
    if not found or not Path(found, "cowork").is_file():
        raise pytest.UsageError("COWORK_PROGRAMS must name the folder with the built programs")
    os.environ["COWORK_BIN"] = found
    os.environ["COWORK_IDLE"] = "3"


AGENT = """
name = "claude"
about = "an agent that does as it is told"

[program]
names = ["scripted.py"]
places = ["{folder}"]

[task]
kind = "claude-stream-json"
"""


def new_folder(name: str) -> Path:
    """A folder of this user's on the file system of /var/tmp."""
    path = Path(f"/var/tmp/cowork-sdk-{os.getpid()}-{next(_NUMBERS)}-{name}")
    path.mkdir(mode=0o700)
    return path


def remove(folder: Path) -> None:
    """Remove a folder with all there is in it; overlayfs leaves folders that nobody may enter."""
    for parent, folders, _ in os.walk(folder):
        for name in folders:
            path = Path(parent, name)
            if not path.is_symlink() and path.stat().st_mode & 0o700 != 0o700:
                path.chmod(0o700)
    shutil.rmtree(folder)


def runs(pid: int) -> bool:
    """Whether a process runs, not counting one that has ended and was not waited for."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(") ")[2][:1] not in {"Z", "X", ""}


def until(condition: Callable[[], object], seconds: float = 20) -> None:
    """Wait for something to become true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def kill_daemon(pid: int) -> None:
    """Kill the daemon of a test's own, and wait until it is gone."""
    os.kill(pid, signal.SIGKILL)
    until(lambda: not runs(pid))


class Site:
    """A daemon of one's own."""

    def __init__(self) -> None:
        self.folder = new_folder("site")
        self.runtime = self.folder / "run"
        self.state = self.folder / "state"
        self.settings = self.folder / "settings"
        (self.settings / "agents").mkdir(parents=True)
        programs = self.folder / "programs"
        programs.mkdir()
        shutil.copy(Path(__file__).parent / "scripted.py", programs)
        (programs / "scripted.py").chmod(0o755)
        (self.settings / "agents" / "claude.toml").write_text(AGENT.format(folder=programs))

    def enter(self, patch: pytest.MonkeyPatch) -> None:
        """Let everything that is started from here use it."""
        patch.setenv("COWORK_RUNTIME_DIR", str(self.runtime))
        patch.setenv("COWORK_STATE_DIR", str(self.state))
        patch.setenv("COWORK_CONFIG_DIR", str(self.settings))

    def leave(self) -> None:
        """End the daemon, if it runs, and remove all it has made."""
        with Client(runtime=self.runtime, start=False) as client, contextlib.suppress(CoworkError):
            pid = client.info().pid
            client.shutdown()
            client.close()
            until(lambda: not runs(pid), 60)
        remove(self.folder)


@pytest.fixture(scope="session", autouse=True)
def shared() -> Iterator[Site]:
    """The daemon of all tests that do no harm to theirs."""
    site = Site()
    with pytest.MonkeyPatch.context() as patch:
        site.enter(patch)
        yield site
        site.leave()


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A daemon for this test alone."""
    site = Site()
    site.enter(monkeypatch)
    yield site
    site.leave()


@pytest.fixture
def folder() -> Iterator[Path]:
    path = new_folder("folder")
    yield path
    remove(path)


@pytest.fixture
def client() -> Iterator[Client]:
    with Client() as client:
        yield client


@pytest.fixture
def session() -> Iterator[Session]:
    with Session.create() as session:
        yield session
