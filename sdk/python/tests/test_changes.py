from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cowork import (
    AsyncSession,
    Caps,
    Client,
    Conflict,
    Grant,
    NotFound,
    PlaceName,
    Quota,
    Session,
    Writes,
)

from .aio import aio

if TYPE_CHECKING:
    from pathlib import Path


def test_changes_are_told_and_taken_back_and_brought_again(folder: Path) -> None:
    (folder / "file").write_text("before\n")
    with Session.create(folders=[Grant(folder, name="data")]) as session:
        session.run("echo after > mnt/data/file; touch mnt/data/new", check=True)
        changes = session.changes()
        assert {change.path: change.kind for change in changes} == {
            "file": "modified", "new": "added",
        }  # fmt: skip
        assert len(changes) == 2
        assert [one.kind for one in changes.sets] == ["command"]
        assert changes.sets[0].process
        assert all(by.process and by.argv for change in changes for by in change.by)
        assert all(change.by for change in changes)
        assert [change.path for change in session.changes(folder / "new")] == ["new"]
        assert any("-before" in (one.text or "") for one in session.diff())
        assert session.diff(set=changes.sets[0].set)
        assert session.undo(dry_run=True).set is None
        assert session.undo().names == 2
        assert (folder / "file").read_text() == "before\n"
        assert not (folder / "new").exists()
        assert session.redo().names == 2
        assert (folder / "file").read_text() == "after\n"
        assert session.undo([folder / "new"]).names == 1
        assert session.undo(all=True).names
        assert (folder / "file").read_text() == "before\n"


def test_what_the_user_changed_since_is_not_lost(folder: Path) -> None:
    (folder / "file").write_text("before\n")
    with Session.create(folders=[Grant(folder, name="data")]) as session:
        session.run("echo after > mnt/data/file", check=True)
        (folder / "file").write_text("mine\n")
        tried = session.undo(dry_run=True)
        assert [conflict.host for conflict in tried.conflicts] == [str(folder / "file")]
        with pytest.raises(Conflict, match="theirs") as caught:
            session.undo()
        assert caught.value.code == "conflict"
        assert (folder / "file").read_text() == "mine\n"
        session.undo(on_conflict="both")
        kept = {path.read_text() for path in folder.iterdir()}
        assert kept == {"before\n", "mine\n"}


def test_changes_of_a_session_that_is_gone_are_taken_back(client: Client, folder: Path) -> None:
    (folder / "file").write_text("before\n")
    with Session.create(folders=[Grant(folder, name="data")]) as session:
        session.run("rm mnt/data/file", check=True)
    history = client.history(folder)
    assert [past.session for past in history.sessions] == [session.id]
    assert history.sessions[0].ended is not None
    assert history.kept.days > 0
    assert client.changed(session.id).undo().names == 1
    assert (folder / "file").read_text() == "before\n"
    with pytest.raises(NotFound):
        client.changed("never-was").changes()


def test_staged_changes_are_applied_or_thrown_away(folder: Path) -> None:
    for name in "ab":
        (folder / name).write_text("before\n")
    with Session.create(folders=[Grant(folder, mode="staged", name="data")]) as session:
        session.run("cd mnt/data; echo after > a; echo after > b", check=True)
        assert (folder / "a").read_text() == "before\n"
        assert len(session.changes()) == 2
        assert session.apply([folder / "a"]).names == 1
        assert (folder / "a").read_text() == "after\n"
        assert [one.path for one in session.discard().folders] == [str(folder)]
        assert session.run("cat mnt/data/b").stdout == "before\n"
        session.undo()
        assert (folder / "a").read_text() == "before\n"


def test_a_boundary_begins_a_new_set(folder: Path) -> None:
    with Session.create(folders=[Grant(folder, name="data")]) as session:
        with session.exec("cd mnt/data; while read x; do touch $x; echo; done", stdin=True) as work:
            work.write("one\n")
            next(work)
            session.boundary()
            work.write("two\n")
            next(work)
            work.close_stdin()
            work.wait(check=True)
        assert len(session.changes().sets) == 2
        assert session.undo().names == 1
        assert [path.name for path in folder.iterdir()] == ["one"]


def test_names_are_protected(folder: Path) -> None:
    with Session.create(folders=[Grant(folder, name="data")]) as session:
        assert any(rule.origin == "default" for rule in session.protected.list())
        rule = session.protected.add("*.lock", "deny", grant="data", reason="made by the build")
        assert (rule.pattern, rule.policy, rule.origin) == ("*.lock", "deny", "session")
        refused = session.run("touch mnt/data/a.lock")
        assert "Permission denied" in refused.stderr
        session.protected.remove("*.lock", grant="data")
        session.run("touch mnt/data/a.lock", check=True)
        with pytest.raises(NotFound):
            session.protected.remove("*.lock", grant="data")


def test_names_are_protected_from_the_start(folder: Path) -> None:
    names = [PlaceName("*.lock", "deny", "made by the build"), PlaceName(".envrc", "allow")]
    writes = Writes(block=["zip"], unblock=["jar"])
    granted = [Grant(folder, name="data")]
    with Session.create(folders=granted, protect=names, writes=writes) as session:
        first = session.protected.list()[0]
        assert (first.pattern, first.policy, first.origin) == ("*.lock", "deny", "session")
        session.run("cd mnt/data; touch a.lock a.zip a.jar .envrc")
        assert sorted(path.name for path in folder.iterdir()) == [".envrc", "a.jar"]


def test_what_may_be_written_is_limited(folder: Path) -> None:
    writes = Writes(quota=Quota(files=2), caps=Caps(ask=False), blocked=["tmp"])
    with Session.create(folders=[Grant(folder, name="data")], writes=writes) as session:
        assert session.run("cd mnt/data; touch a b c").stderr.count("quota") == 1
        assert session.run("touch mnt/data/x.tmp").exit_code != 0
        changed = session.regrant("data", "rw", writes=Writes(quota=Quota(files=100)))
        assert changed.grant.writes.quota is not None
        assert changed.grant.writes.quota.files == 100
        session.run("cd mnt/data; touch c d e", check=True)


@aio
async def test_asyncio_takes_changes_back(folder: Path) -> None:
    (folder / "file").write_text("before\n")
    async with AsyncSession.create(folders=[Grant(folder, name="data")]) as session:
        await session.run("rm mnt/data/file", check=True)
        assert [change.kind for change in await session.changes()] == ["deleted"]
        assert (await session.undo()).names == 1
        assert (folder / "file").read_text() == "before\n"
        assert await session.protected.list()
        await session.boundary()
        with pytest.raises(Conflict):
            await session.undo()
