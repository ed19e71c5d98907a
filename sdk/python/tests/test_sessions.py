from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import cowork
from cowork import (
    AsyncClient,
    AsyncSession,
    Client,
    Conflict,
    CoworkError,
    Grant,
    InvalidRequest,
    Limits,
    NotFound,
    Session,
    types,
)

from .aio import aio
from .conftest import until

if TYPE_CHECKING:
    from pathlib import Path


def test_a_session_ends_with_its_context(client: Client) -> None:
    with Session.create(labels={"a": "b"}) as session:
        assert session.info.state == "ready"
        assert session.info.labels == {"a": "b"}
        assert any(layer.state == "in force" for layer in session.info.enforcement)
        listed = client.list_sessions(label="a=b")
        assert [info.id for info in listed] == [session.id]
    with pytest.raises(NotFound) as caught:
        client.connect(session.id)
    assert (caught.value.code, caught.value.status) == ("no-session", 404)
    assert session.id in str(caught.value)


def test_a_session_that_is_kept_is_found_again() -> None:
    with Session.create(keep=True) as session:
        session.run("echo kept > file")
    with cowork.connect(session.id) as again:
        assert again.run("cat file").stdout == "kept\n"
    assert session.id in [info.id for info in cowork.list_sessions()]
    again = cowork.connect(session.id)
    again.end()
    again.end()
    assert session.id not in [info.id for info in cowork.list_sessions()]


def test_a_session_ends_also_when_its_block_fails(client: Client) -> None:
    with pytest.raises(ZeroDivisionError), Session.create() as session:
        _ = 1 / 0
    with pytest.raises(NotFound):
        client.connect(session.id)


def test_it_is_stopped_and_started_and_its_home_stays(session: Session) -> None:
    session.run("echo here > note", check=True)
    assert session.stop().state == "stopped"
    with pytest.raises(Conflict) as caught:
        session.run("true")
    assert caught.value.code == "not-live"
    assert session.start().state == "ready"
    assert session.run("cat note").stdout == "here\n"
    assert session.status().state == "ready"


def test_it_stands_still_and_goes_on(session: Session) -> None:
    process = session.exec("while :; do echo tick; sleep 0.02; done")
    next(process)
    assert session.pause().state == "paused"
    with pytest.raises(Conflict, match="paused"):
        session.run("true")
    assert session.resume().state == "running"
    next(process)
    assert session.cancel(grace=1).state == "ready"
    assert process.wait().exit_code != 0


def test_limits_and_labels_change_while_it_runs() -> None:
    with Session.create(limits=Limits(processes=64), best_effort=True) as session:
        limits = {limit.limit: limit.value for limit in session.info.limits}
        assert limits["processes"] == "64"
        info = session.set(labels={"x": "y"}, limits=Limits(processes=48))
        assert info.labels == {"x": "y"}
        assert {limit.limit: limit.value for limit in info.limits}["processes"] == "48"


def test_usage_and_paths_and_commands_are_told(session: Session, folder: Path) -> None:
    session.grant(folder, name="data")
    session.run("true")
    assert session.usage().wall_ms > 0
    inside = f"/sessions/{session.id}/mnt/data/x"
    assert session.path(host=folder / "x").session == inside
    assert session.path(session=inside).host == str(folder / "x")
    assert [command.code for command in session.commands()] == [0]


def test_outputs_can_be_a_folder_of_the_host_and_a_workspace_has_a_name(folder: Path) -> None:
    (folder / "out").mkdir()
    (folder / "work").mkdir()
    made = Session.create(
        folders=[folder / "work"], outputs=folder / "out", workspace="desk", id="sdk-named"
    )
    with made as session:
        assert session.id == "sdk-named"
        session.run("echo done > mnt/outputs/report", check=True)
        assert session.run("pwd -P", cwd="/desk").stdout.endswith("/mnt/work\n")
    assert (folder / "out" / "report").read_text() == "done\n"


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        ({"folders": ["/nowhere/at/all"]}, "no-folder"),
        ({"limits": Limits(memory="much")}, "bad-limit"),
        ({"id": "Not An Id"}, "malformed"),
        ({"workspace": "desk"}, "no-workspace"),
        ({"network": ["*.*.*"]}, "bad-rule"),
        ({"secrets": ["unknown"]}, "no-secret"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_code(wanted: dict[str, object], code: str) -> None:
    with pytest.raises((InvalidRequest, NotFound)) as caught:
        Session.create(**wanted)  # type: ignore[arg-type]
    assert caught.value.code == code
    assert caught.value.sentence


def test_a_sensitive_folder_needs_to_be_meant(session: Session) -> None:
    with pytest.raises(cowork.Forbidden) as caught:
        session.grant("/")
    assert caught.value.code == "sensitive"
    assert caught.value.hint
    assert str(caught.value.hint) in str(caught.value)


def test_folders_come_and_go_while_it_runs(session: Session, folder: Path) -> None:
    (folder / "file").write_text("text")
    granted = session.grant(Grant(folder, mode="ro", name="data"))
    assert (granted.name, granted.access, granted.path) == ("data", "ro", str(folder))
    assert session.run("cat mnt/data/file").stdout == "text"
    assert session.run("echo x > mnt/data/file").exit_code != 0
    changed = session.regrant("data", "rw")
    assert changed.grant.access == "rw"
    session.run("echo more >> mnt/data/file", check=True)
    assert (folder / "file").read_text() == "textmore\n"
    assert [grant.name for grant in session.grants()] == ["data"]
    assert session.granted("data") == session.grants()[0]

    holder = session.exec("exec 3< mnt/data/file; echo held; sleep 100")
    next(holder)
    revoked = session.revoke("data")
    assert revoked.certainty in {"kernel", "scan"}
    assert revoked.killed
    assert holder.wait().exit_code != 0
    assert session.run("ls mnt/data").exit_code != 0
    with pytest.raises(NotFound) as caught:
        session.revoke("data")
    assert caught.value.code == "no-grant"


def test_the_daemon_and_the_host_are_told(client: Client) -> None:
    facts = cowork.doctor()
    assert {fact.grade for fact in facts} <= {"good", "reduced", "blocking"}
    assert facts
    assert any(preset.name == "pypi" for preset in client.presets())
    assert client.rules() == []
    with pytest.raises(NotFound):
        client.remove_rule("allow nothing.example")
    with pytest.raises(NotFound) as caught:
        client.call(dict, "GET", "/v1/nothing")
    assert caught.value.code == "no-route"


def test_two_calls_with_one_key_make_one_session(client: Client) -> None:
    with Session.create(key="sdk-key-1") as session, Session.create(key="sdk-key-1") as again:
        assert session.id == again.id
    with pytest.raises(InvalidRequest) as caught:
        Session.create(key="sdk-key-1", labels={"other": "body"})
    assert caught.value.code == "key-reused"
    assert session.id not in [info.id for info in client.list_sessions()]


def test_what_it_uses_is_told_with_its_past(session: Session) -> None:
    with session.exec("echo begun; sleep 100") as process:
        next(process)
        usage = session.usage()
        until(lambda: session.processes("sleep"), 30)
        (sleep,) = session.processes("sleep")
        assert session.processes(pid=sleep.pid) == session.processes(pid=sleep.inside) == [sleep]
        assert session.processes("slee") == []
        alone = process.usage()
        assert (alone.processes >= 1, alone.memory > 0, alone.wall_ms > 0) == (True, True, True)
    assert usage.processes >= 1
    assert usage.memory > 0
    until(session.usage_history, 30)
    assert session.usage_history()[0].time <= session.usage().time


def test_the_host_is_seen_at_its_own_paths(folder: Path) -> None:
    for name in ("shown", "hidden", "changed"):
        (folder / name).mkdir()
        (folder / name / "file").write_text(name)
    place = types.WritablePlace(str(folder / "changed"), access="direct")
    view = types.View(hidden=[str(folder / "hidden")], writable=[place])
    with Session.create(view=view) as session:
        assert session.run(["cat", f"{folder}/shown/file"], check=True).stdout == "shown"
        assert session.run(["cat", f"{folder}/hidden/file"]).exit_code != 0
        assert session.run(f"echo x > {folder}/shown/file").exit_code != 0
        session.run(f"echo x > {folder}/changed/file", check=True)
    assert (folder / "changed" / "file").read_text() == "x\n"


def test_paths_are_told_in_both_views(session: Session, folder: Path) -> None:
    session.grant(folder, name="data")
    found = session.path(host=folder / "a" / "b")
    assert found.session == f"/sessions/{session.id}/mnt/data/a/b"
    assert session.path(session=found.session).host == str(folder / "a" / "b")
    with pytest.raises(CoworkError) as caught:
        session.path(host="/etc/passwd")
    assert caught.value.code


@aio
async def test_asyncio_has_the_same_life(folder: Path) -> None:
    async with AsyncClient() as client:
        async with AsyncSession.create(
            folders=[folder], client=client, labels={"t": "1"}
        ) as session:
            assert (await session.status()).state == "ready"
            assert (await session.stop()).state == "stopped"
            assert (await session.start()).state == "ready"
            name = (await session.grants())[0].name
            assert (await session.regrant(name, "ro")).grant.access == "ro"
            assert (await session.revoke(name)).name == name
            assert (await session.pause()).state == "paused"
            assert (await session.resume()).state == "ready"
            again = await client.connect(session.id)
            assert again.info.labels == {"t": "1"}
            async with client.connect(session.id) as other:
                assert (await other.run("echo a")).stdout == "a\n"
        with pytest.raises(NotFound):
            await client.connect(session.id)
        with pytest.raises(NotFound):
            await AsyncSession.connect(session.id)
        assert await client.doctor()


def test_a_client_that_was_closed_is_used_in_another_loop() -> None:
    client = AsyncClient()

    async def once() -> int:
        async with client:
            return (await client.info()).pid

    assert asyncio.run(once()) == asyncio.run(once())
