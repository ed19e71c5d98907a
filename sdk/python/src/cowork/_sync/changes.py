# Made by tools/twin.py from _async/changes.py; change that.
"""What a session changed in granted folders, and how that is taken back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .. import types
from .._json import decode, present, raw
from .._wire import segment

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .client import Client

Names = list[types.ProtectedName]


class Changed:
    """What a session changed: one that runs, one that is stopped, or one that is gone.

    Paths are those of the host or of the session. Where the user has changed something since,
    ``on_conflict`` says what to do: nothing at all (``"refuse"``), leave what is there
    (``"ours"``), bring back what was (``"theirs"``), or have both.
    """

    def __init__(self, client: Client, id: str) -> None:
        self.id = id
        """The session's id, e.g. ``zealous-ramanujan``."""
        self.client = client
        self._path = f"/v1/sessions/{segment(id)}"

    def changes(
        self,
        path: types.PathName | None = None,
        *,
        set: int | None = None,
        command: int | None = None,
    ) -> types.Changes:
        """What is not as it was: all, or below a path, in one set, or by one command.

        It can be iterated.
        """
        query = {"path": _name(path), "set": set, "command": command}
        return self.client.call(types.Changes, "GET", f"{self._path}/changes", query=query)

    def diff(
        self, path: types.PathName | None = None, *, set: int | None = None
    ) -> list[types.Difference]:
        """The differences of contents: all, or below a path, or in one set."""
        query = {"path": _name(path), "set": set}
        found = self.client.call(object, "GET", f"{self._path}/diff", query=query)
        return decode(list[types.Difference], found)

    def undo(
        self,
        paths: Iterable[types.PathName] = (),
        *,
        sets: Iterable[int] = (),
        all: bool = False,
        on_conflict: types.OnConflict = "refuse",
        dry_run: bool = False,
    ) -> types.Restored:
        """Take changes back: those of the last set, unless paths, sets or all are named."""
        body = {
            "paths": _names(paths),
            "sets": list(sets),
            "all": all,
            "on_conflict": on_conflict,
            "dry_run": dry_run,
        }
        return self.client.call(types.Restored, "POST", f"{self._path}/undo", body)

    def redo(
        self, *, on_conflict: types.OnConflict = "refuse", dry_run: bool = False
    ) -> types.Restored:
        """Take the last undo back."""
        body = {"on_conflict": on_conflict, "dry_run": dry_run}
        return self.client.call(types.Restored, "POST", f"{self._path}/redo", body)

    def apply(
        self,
        paths: Iterable[types.PathName] = (),
        *,
        on_conflict: types.OnConflict = "refuse",
        dry_run: bool = False,
    ) -> types.Restored:
        """Carry staged changes over into their folders: all, or those below paths."""
        body = {"paths": _names(paths), "on_conflict": on_conflict, "dry_run": dry_run}
        return self.client.call(types.Restored, "POST", f"{self._path}/apply", body)

    def discard(self, paths: Iterable[types.PathName] = ()) -> types.Discarded:
        """Throw staged changes away: all, or those of granted folders."""
        body = {"paths": _names(paths)}
        return self.client.call(types.Discarded, "POST", f"{self._path}/discard", body)


class Protected:
    """Names that a session may not simply change, in every granted folder or in one."""

    def __init__(self, client: Client, session: str) -> None:
        self._client = client
        self._path = f"/v1/sessions/{session}/protected"

    def list(self) -> Names:
        """The rules, in their order."""
        return decode(Names, self._client.call(object, "GET", self._path))

    def add(
        self,
        pattern: str,
        policy: types.NamePolicy = "deny",
        *,
        grant: str | None = None,
        reason: str | None = None,
    ) -> types.ProtectedName:
        """Add a rule, or replace the one with the same pattern.

        A pattern has components with ``*``, ``?`` and ``**``, and is meant at any depth unless it
        starts with ``/``, which is the granted folder.
        """
        body = present(pattern=pattern, policy=policy, grant=grant, reason=reason)
        return self._client.call(types.ProtectedName, "POST", self._path, body)

    def remove(self, pattern: str, *, grant: str | None = None) -> None:
        """Take a rule away."""
        query = {"pattern": pattern, "grant": grant}
        self._client.call(type(None), "DELETE", self._path, query=query)


def _name(path: types.PathName | None) -> str | None:
    return None if path is None else str(Path(path).expanduser())


def _names(paths: Iterable[types.PathName]) -> list[str | dict[str, str]]:
    return [raw(Path(path).expanduser()) for path in paths]
