# Made by tools/twin.py from _async/files.py; change that.
"""Files of a session."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .. import types
from .._wire import Call, path, segment, target
from ..errors import Conflict, CoworkError, InvalidRequest, NotFound
from .watch import Watch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .client import Client
    from .transport import Body

Entries = list[types.FileEntry]

PIECE = 256 * 1024


class Files:
    """Files of a session, from outside: ``outputs``, ``uploads``, and granted folders.

    A path starts with one of these, e.g. ``outputs/report.txt``; a path as the session sees it,
    ``/sessions/ID/mnt/outputs/report.txt``, means the same. Symbolic links are not followed.
    """

    def __init__(self, client: Client, session: str) -> None:
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

    def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        """Read a file, or a part of it."""
        request = Call("GET", self._file(path))
        if start or length is not None:
            if length == 0:
                return b""
            last = "" if length is None else str(start + length - 1)
            request.headers["Range"] = f"bytes={start}-{last}"
        return self._client.transport.call(request)

    def _file(self, name: str) -> str:
        if "/" not in self._place(name):
            raise Conflict(f"`{name}` is a folder", code="is-folder", status=409)
        return self._target(name)

    def read_text(self, path: str, encoding: str = "utf-8") -> str:
        """Read a file as text."""
        return (self.read(path)).decode(encoding)

    def open(self, path: str) -> Body:
        """Read a file as it comes: iterate, and close."""
        return self._client.transport.open(Call("GET", self._file(path)))

    def write(self, path: str, data: str | bytes | Iterable[bytes]) -> None:
        """Write a file, whole, with the folders on its way."""
        if isinstance(data, str | bytes):
            body = data.encode() if isinstance(data, str) else data
            request = Call("PUT", self._file(path), body)
        else:
            request = Call("PUT", self._file(path), upload=data)
        self._client.transport.call(request)

    def make_folder(self, path: str) -> None:
        """Make a folder, with those on its way, unless it is there."""
        self._file(path)
        self._client.call(type(None), "PUT", self._target(path, folder=True))

    def upload(self, source: types.PathName, path: str | None = None) -> None:
        """Copy a file of the host into the session: to ``uploads`` if no place is named."""
        found = Path(source).expanduser()

        def pieces() -> Iterable[bytes]:
            with found.open("rb") as file:
                while piece := file.read(PIECE):
                    yield piece

        self.write(path or f"uploads/{found.name}", pieces())

    def download(self, path: str, to: types.PathName) -> None:
        """Copy a file of the session to the host."""
        body = self.open(path)
        try:
            with Path(to).expanduser().open("wb") as file:
                for piece in body:
                    file.write(piece)
        finally:
            body.close()

    def list(self, path: str) -> Entries:
        """What is in a folder, by name."""
        return self._client.every(
            types.FileEntry, self._target(path).partition("?")[0], {"list": True, "limit": 1000}
        )

    def watch(self, path: str) -> Watch:
        """Changes in a folder and those below it, as they happen: iterate, and close."""
        root, _, below = self._place(path).partition("/")
        where = f"/v1/sessions/{self._session}/watch/{segment(root)}"
        query = {"path": below or None}
        return Watch(self._client.transport, target(where, query))

    def stat(self, path: str) -> types.FileEntry:
        """What a name is, without following a link."""
        parent, _, name = self._place(path).rpartition("/")
        if not parent:
            raise InvalidRequest(
                f"`{path}` is a folder of the session itself", code="bad-path", status=422
            )
        for entry in self.list(parent):
            if entry.name == name:
                return entry
        raise NotFound(f"there is no `{path}`", code="no-file", status=404)

    def exists(self, path: str) -> bool:
        """Whether there is such a file or folder."""
        if "/" not in self._place(path):
            try:
                self.list(path)
            except NotFound:
                return False
            return True
        try:
            self.stat(path)
        except CoworkError as error:
            if error.code in {"no-file", "no-root", "not-folder"}:
                return False
            raise
        return True

    def remove(self, path: str) -> None:
        """Remove a file or an empty folder."""
        self._client.call(type(None), "DELETE", self._file(path))
