from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from cowork import AsyncSession, Conflict, CoworkError, Forbidden, Grant, InvalidRequest, NotFound

from .aio import aio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from cowork import Session
    from cowork.types import FileChange


def test_files_go_in_and_come_out(session: Session) -> None:
    session.files.write("uploads/in.txt", "text")
    assert session.run("cat mnt/uploads/in.txt").stdout == "text"
    session.run("mkdir mnt/outputs/d; printf 0123456789 > mnt/outputs/d/out", check=True)
    assert session.files.read("outputs/d/out") == b"0123456789"
    assert session.files.read("outputs/d/out", start=3, length=4) == b"3456"
    assert session.files.read("outputs/d/out", start=8) == b"89"
    assert session.files.read("outputs/d/out", length=0) == b""
    assert session.files.read_text(f"/sessions/{session.id}/mnt/outputs/d/out") == "0123456789"
    assert [(e.name, e.kind) for e in session.files.list("outputs")] == [("d", "folder")]
    entry = session.files.stat("outputs/d/out")
    assert (entry.kind, entry.size) == ("file", 10)
    assert session.files.exists("outputs")
    assert session.files.exists("outputs/d")
    assert not session.files.exists("outputs/e/f")
    assert not session.files.exists("no-such-grant")
    session.files.make_folder("outputs/d/empty")
    assert session.run("ls -A mnt/outputs/d/empty", check=True).stdout == ""
    session.files.remove("outputs/d/empty")
    session.files.remove("outputs/d/out")
    session.files.remove("outputs/d")
    assert session.files.list("outputs") == []


def test_large_files_are_copied_piece_by_piece(session: Session, folder: Path) -> None:
    source, copy = folder / "source", folder / "copy"
    source.write_bytes(os.urandom(1024) * 30 * 1024)
    session.files.upload(source)
    session.run("cp mnt/uploads/source mnt/outputs/result", check=True)
    session.files.download("outputs/result", copy)
    assert copy.read_bytes() == source.read_bytes()
    session.files.write("outputs/pieces", (b"%d," % n for n in range(1000)))
    assert session.files.read("outputs/pieces").startswith(b"0,1,2,")
    body = session.files.open("outputs/result")
    assert body.read()
    body.close()


def test_names_of_any_kind_stay_what_they_are(session: Session) -> None:
    for name in ["a b", "ü", "%2e", "?x=y#z", os.fsdecode(b"\xff\xfe"), "..."]:
        session.files.write(f"outputs/{name}", name.encode(errors="surrogateescape"))
        assert session.files.read(f"outputs/{name}") == name.encode(errors="surrogateescape")
        assert session.files.stat(f"outputs/{name}").kind == "file"
        session.files.remove(f"outputs/{name}")


def test_folders_have_more_entries_than_one_part(session: Session) -> None:
    session.run("cd mnt/outputs && seq 1500 | xargs touch", check=True)
    assert len(session.files.list("outputs")) == 1500


def test_granted_folders_are_there_with_their_access(session: Session, folder: Path) -> None:
    session.grant(Grant(folder, mode="ro", name="data"))
    (folder / "file").write_text("text")
    assert session.files.read_text("data/file") == "text"
    with pytest.raises(Forbidden) as caught:
        session.files.write("data/file", "other")
    assert caught.value.code == "read-only"
    (folder / "link").symlink_to("/etc/passwd")
    with pytest.raises(Forbidden) as caught:
        session.files.read("data/link")
    assert caught.value.code == "link"
    assert session.files.stat("data/link").kind == "link"


def test_what_is_not_there_is_said(session: Session) -> None:
    for call, error, code in [
        (lambda: session.files.read("outputs/none"), NotFound, "no-file"),
        (lambda: session.files.stat("outputs/none"), NotFound, "no-file"),
        (lambda: session.files.read("nothing/none"), NotFound, "no-root"),
        (lambda: session.files.read("outputs"), Conflict, "is-folder"),
        (lambda: session.files.read("/etc/passwd"), InvalidRequest, "bad-path"),
        (lambda: session.files.read(""), InvalidRequest, "bad-path"),
        (lambda: session.files.read("outputs/../../etc/passwd"), CoworkError, "bad-path"),
    ]:
        with pytest.raises(error) as caught:
            call()  # type: ignore[no-untyped-call]
        assert caught.value.code == code


@aio
async def test_asyncio_has_files_too(folder: Path) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for number in range(3):
            yield b"%d" % number

    async with AsyncSession.create() as session:
        await session.files.write("outputs/a", pieces())
        await session.files.write("outputs/b", "text")
        assert await session.files.read("outputs/a") == b"012"
        assert [entry.name for entry in await session.files.list("outputs")] == ["a", "b"]
        (folder / "big").write_bytes(b"x" * 5_000_000)
        await session.files.upload(folder / "big", "uploads/copy")
        await session.files.download("uploads/copy", folder / "back")
        assert (folder / "back").stat().st_size == 5_000_000
        await session.files.remove("outputs/a")
        assert not await session.files.exists("outputs/a")
        with pytest.raises(NotFound):
            await session.files.read("outputs/a")


def test_changes_are_told_until_the_grant_ends(session: Session, folder: Path) -> None:
    (folder / "below").mkdir()
    moment = datetime.now(UTC) + timedelta(hours=1)
    granted = session.grant(Grant(folder, name="watched", expires=moment))
    assert granted.expires is not None
    assert abs(granted.expires - moment) < timedelta(seconds=1)
    with session.files.watch("watched/below") as changes:
        session.run("cd mnt/watched/below && echo x > a && mv a b", check=True)
        seen: list[FileChange] = []
        while not seen or seen[-1].path != "b":
            seen.append(next(changes))
        assert ("created", "a") in [(change.kind, change.path) for change in seen]
        assert (seen[-1].kind, seen[-1].from_) in [("moved", "a"), ("created", None)]
        session.revoke("watched")
        assert list(changes) == []
        assert changes.reason == "revoked"
    with pytest.raises(NotFound):
        session.files.watch("watched").open()
