"""A daemon of the tests' own, folders, and sessions. Nothing is made up, nothing is skipped.

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


def new_folder(name: str) -> Path:
    """A folder of this user's on the file system of /var/tmp."""
    path = Path(f"/var/tmp/cowork-sdk-{os.getpid()}-{next(_NUMBERS)}-{name}")
    path.mkdir(mode=0o700)
    return path


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

    def enter(self, patch: pytest.MonkeyPatch) -> None:
        """Let everything that is started from here use it."""
        patch.setenv("COWORK_RUNTIME_DIR", str(self.runtime))
        patch.setenv("COWORK_STATE_DIR", str(self.state))

    def leave(self) -> None:
        """End the daemon, if it runs, and remove all it has made."""
        with Client(runtime=self.runtime, start=False) as client, contextlib.suppress(CoworkError):
            pid = client.info().pid
            client.shutdown()
            client.close()
            until(lambda: not runs(pid), 60)
        shutil.rmtree(self.folder)


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
    shutil.rmtree(path)


@pytest.fixture
def client() -> Iterator[Client]:
    with Client() as client:
        yield client


@pytest.fixture
def session() -> Iterator[Session]:
    with Session.create() as session:
        yield session
