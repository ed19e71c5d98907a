"""How the daemon is found and started."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

import pytest

from cowork import AsyncClient, Client, DaemonUnavailable, Session, _places

from .aio import aio
from .conftest import runs, until

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Site


def test_the_daemon_is_started_at_the_first_call_and_not_before(site: Site) -> None:
    with Client() as client:
        assert not (site.runtime / "api.sock").exists()
        info = client.info()
        assert info.user == os.geteuid()
        assert runs(info.pid)
    with Client(start=False) as again:
        assert again.info().pid == info.pid


@aio
async def test_asyncio_starts_it_too(site: Site) -> None:
    async with AsyncClient() as client:
        assert runs((await client.info()).pid)
    assert site.runtime.stat().st_mode & 0o777 == 0o700


def test_many_who_start_it_at_once_meet_at_one(site: Site) -> None:
    assert not site.state.exists()
    found: list[int] = []

    def ask() -> None:
        with Client() as client:
            found.append(client.info().pid)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_the_daemon_stays_as_long_as_a_client_is_there_and_leaves_afterwards(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COWORK_IDLE", "1")
    assert not site.state.exists()
    with Client() as client:
        pid = client.info().pid
        time.sleep(2.5)
        assert client.info().pid == pid
    # Not even a process that was not waited for is left.
    until(lambda: not os.path.exists(f"/proc/{pid}"))
    with Client() as client:
        assert client.info().pid != pid


def test_without_a_daemon_and_without_leave_to_start_one_it_is_said(site: Site) -> None:
    with Client(start=False) as client, pytest.raises(DaemonUnavailable) as caught:
        client.info()
    assert caught.value.code == "not-running"
    assert str(site.runtime) in str(caught.value)
    assert caught.value.status is None


def test_without_a_program_it_is_said_what_to_do(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COWORK_BIN")
    monkeypatch.setenv("PATH", str(site.folder))
    with Client() as client, pytest.raises(DaemonUnavailable, match="COWORK_BIN") as caught:
        client.info()
    assert caught.value.code == "no-program"
    monkeypatch.setenv("COWORK_BIN", "/nowhere/cowork")
    with Client() as client, pytest.raises(DaemonUnavailable, match="/nowhere/cowork"):
        client.info()


def test_a_program_on_the_path_is_found_and_coworkd_alone_will_do(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = os.environ["COWORK_PROGRAMS"]
    monkeypatch.delenv("COWORK_BIN")
    monkeypatch.setenv("PATH", f"{site.folder}:{programs}:{os.environ['PATH']}")
    assert str(_places.find_program()) == f"{programs}/cowork"
    with Client(program=f"{programs}/coworkd") as client:
        assert os.getsid(client.info().pid) != os.getsid(0)


def test_a_daemon_that_fails_is_quoted(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.state.write_text("not a folder")
    monkeypatch.setattr(_places, "OTHER", 0.2)
    with Client() as client, pytest.raises(DaemonUnavailable) as caught:
        client.info()
    assert caught.value.code == "not-started"
    assert str(site.state) in str(caught.value.detail)
    assert "coworkd.log" in str(caught.value.hint)


def test_root_means_the_daemon_of_the_system_once_there_is_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("COWORK_RUNTIME_DIR", "COWORK_STATE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/0")
    monkeypatch.setattr(_places, "SYSTEM_STATE", folder / "missing")
    assert str(_places._runtime()) == "/run/user/0/cowork"
    monkeypatch.setattr(_places, "SYSTEM_STATE", folder)
    of_system = os.geteuid() == 0 and folder.stat().st_uid == 0
    found = "/run/cowork" if of_system else "/run/user/0/cowork"
    assert str(_places._runtime()) == found
    monkeypatch.setenv("COWORK_STATE_DIR", str(folder))
    assert str(_places._runtime()) == "/run/user/0/cowork"


def test_a_runtime_folder_that_others_can_enter_is_refused(folder: Path) -> None:
    (folder / "open").mkdir(mode=0o755)
    (folder / "open").chmod(0o755)
    (folder / "link").symlink_to(folder)
    (folder / "file").touch()
    for name, why in [("open", "0700"), ("link", "link"), ("file", "folder"), ("x" * 120, "long")]:
        with pytest.raises(DaemonUnavailable, match=why):
            Client(runtime=folder / name)
    with pytest.raises(DaemonUnavailable, match="absolute"):
        Client(runtime="relative")
    with pytest.raises(DaemonUnavailable, match="cannot use"):
        Client(runtime=folder / "missing" / "run")


def test_a_process_that_forks_does_not_share_connections() -> None:
    with Session.create() as session:
        session.run("true")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = 0 if session.run("echo child").stdout == "child\n" else 1
            finally:
                os._exit(code)
        assert session.run("echo parent").stdout == "parent\n"
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
