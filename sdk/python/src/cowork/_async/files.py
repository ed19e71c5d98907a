"""Files of a session."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .. import types
from .._wire import Call, path, segment, target
from ..errors import Conflict, CoworkError, InvalidRequest, NotFound
from .watch import AsyncWatch

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Iterable

    from .client import AsyncClient
    from .transport import AsyncBody

Entries = list[types.FileEntry]

PIECE = 256 * 1024


class AsyncFiles:
    """Files of a session, from outside: ``outputs``, ``uploads``, and granted folders.

    A path starts with one of these, e.g. ``outputs/report.txt``; a path as the session sees it,
    ``/sessions/ID/mnt/outputs/report.txt``, means the same. Symbolic links are not followed.
    """

    def __init__(self, client: AsyncClient, session: str) -> None:
        self._client = client
        self._session = session

    def _place(self, name: str) -> str:
        """The path below ``mnt``, without slashes at its ends."""
        inside = f"/sessions/{self._session}/mnt/"
        place = name.removeprefix(inside).strip("/")
        if not place or (name.startswith("/") and not name.startswith(inside)):
            raise InvalidRequest(
                f"`{name}` is not in a folder of the session",
                code="bad-path",
                status=422,
                hint="it starts with outputs, uploads, or the name of a granted folder",
            )
        return place

    def _target(self, name: str, **query: object) -> str:
        return target(f"/v1/sessions/{self._session}/files/{path(self._place(name))}", query)

    async def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        """Read a file, or a part of it."""
        request = Call("GET", self._file(path))
        if start or length is not None:
            if length == 0:
                return b""
            last = "" if length is None else str(start + length - 1)
            request.headers["Range"] = f"bytes={start}-{last}"
        return await self._client.transport.call(request)

    def _file(self, name: str) -> str:
        if "/" not in self._place(name):
            raise Conflict(f"`{name}` is a folder", code="is-folder", status=409)
        return self._target(name)

    async def read_text(self, path: str, encoding: str = "utf-8") -> str:
        """Read a file as text."""
        return (await self.read(path)).decode(encoding)

    async def open(self, path: str) -> AsyncBody:
        """Read a file as it comes: iterate, and close."""
        return await self._client.transport.open(Call("GET", self._file(path)))

    async def write(
        self, path: str, data: str | bytes | Iterable[bytes] | AsyncIterable[bytes]
    ) -> None:
        """Write a file, whole, with the folders on its way."""
        if isinstance(data, str | bytes):
            body = data.encode() if isinstance(data, str) else data
            request = Call("PUT", self._file(path), body)
        else:
            request = Call("PUT", self._file(path), upload=data)
        await self._client.transport.call(request)

    async def make_folder(self, path: str) -> None:
        """Make a folder, with those on its way, unless it is there."""
        self._file(path)
        await self._client.call(type(None), "PUT", self._target(path, folder=True))

    async def upload(self, source: types.PathName, path: str | None = None) -> None:
        """Copy a file of the host into the session: to ``uploads`` if no place is named."""
        found = Path(source).expanduser()

        def pieces() -> Iterable[bytes]:
            with found.open("rb") as file:
                while piece := file.read(PIECE):
                    yield piece

        await self.write(path or f"uploads/{found.name}", pieces())

    async def download(self, path: str, to: types.PathName) -> None:
        """Copy a file of the session to the host."""
        body = await self.open(path)
        try:
            with Path(to).expanduser().open("wb") as file:
                async for piece in body:
                    file.write(piece)
        finally:
            await body.aclose()

    async def list(self, path: str) -> Entries:
        """What is in a folder, by name."""
        return await self._client.every(
            types.FileEntry, self._target(path).partition("?")[0], {"list": True, "limit": 1000}
        )

    def watch(self, path: str) -> AsyncWatch:
        """Changes in a folder and those below it, as they happen: iterate, and close."""
        root, _, below = self._place(path).partition("/")
        where = f"/v1/sessions/{self._session}/watch/{segment(root)}"
        query = {"path": below or None}
        return AsyncWatch(self._client.transport, target(where, query))

    async def stat(self, path: str) -> types.FileEntry:
        """What a name is, without following a link."""
        parent, _, name = self._place(path).rpartition("/")
        if not parent:
            raise InvalidRequest(
                f"`{path}` is a folder of the session itself", code="bad-path", status=422
            )
        for entry in await self.list(parent):
            if entry.name == name:
                return entry
        raise NotFound(f"there is no `{path}`", code="no-file", status=404)

    async def exists(self, path: str) -> bool:
        """Whether there is such a file or folder."""
        if "/" not in self._place(path):
            try:
                await self.list(path)
            except NotFound:
                return False
            return True
        try:
            await self.stat(path)
        except CoworkError as error:
            if error.code in {"no-file", "no-root", "not-folder"}:
                return False
            raise
        return True

    async def remove(self, path: str) -> None:
        """Remove a file or an empty folder."""
        await self._client.call(type(None), "DELETE", self._file(path))
