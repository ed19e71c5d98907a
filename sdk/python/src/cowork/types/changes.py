# Made by tools/answers.py from docs/openapi.json; change that.
"""What sessions change in granted folders."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

__all__ = [
    "Change",
    "ChangeConflict",
    "ChangeKind",
    "ChangeMark",
    "ChangeSet",
    "ChangedBy",
    "ChangedFile",
    "ChangedFolder",
    "Changes",
    "Difference",
    "Discarded",
    "History",
    "MarkKind",
    "NamePolicy",
    "OnConflict",
    "ProtectedName",
    "Restored",
    "RestoredName",
    "Retention",
    "RuleOrigin",
    "SessionHistory",
    "SetKind",
]


@dataclass(frozen=True)
class Retention:
    """How long changes of sessions that are gone can be undone.

    The oldest are forgotten first.
    """

    days: int
    """Days after the end of the session."""
    bytes: int
    """Most bytes, of all sessions together."""


@dataclass(frozen=True)
class ChangedFolder:
    """A folder of the host in which something was changed."""

    grant: str
    """The grant's name."""
    path: str
    """Where it lies on the host."""


SetKind = Literal["command", "undo", "apply"]
"""What a set comes from.

``command``: a command of the session and what it started. ``undo``: an undo, or a redo.
``apply``: staged changes that were applied.
"""


@dataclass(frozen=True)
class ChangeSet:
    """A set of changes: those of one command, one undo, or one application of staged changes."""

    set: int
    """Its number in the session."""
    kind: SetKind
    """What it comes from."""
    undoes: list[int]
    """The sets that it undid."""
    command: int | None
    """The number of the command, where it is known."""
    process: int | None
    """Its first process, by its id in the session; none of an undo and of what was applied."""
    task: int | None
    """The task that the command worked on as its agent, if it did."""
    argv: list[str]
    """Its words, as far as they are kept."""
    began: datetime
    """When the first change was made."""
    last: datetime
    """When the last one was."""
    records: int
    """How many records it has."""
    undone_by: int | None
    """The set that undid it, if one did and was not undone itself."""
    folders: list[ChangedFolder]
    """The folders that it touched."""


@dataclass(frozen=True)
class SessionHistory:
    """The change sets of a session."""

    session: str
    """The session."""
    created: datetime
    """When it was made."""
    ended: datetime | None
    """When it was removed, if it was."""
    sets: list[ChangeSet]
    """Its sets, the oldest first."""


@dataclass(frozen=True)
class History:
    """Sessions that changed something, and how long that is kept."""

    kept: Retention
    """How long and how much."""
    bytes: int
    """How many bytes of disk are taken, of all sessions."""
    sessions: list[SessionHistory]
    """Sessions, the newest first."""


@dataclass(frozen=True)
class ChangeConflict:
    """Something that the user has changed since."""

    host: str
    """The path on the host."""
    now: str
    """What is there now."""
    before: str
    """What would be brought back."""
    outcome: str
    """What was done."""


@dataclass(frozen=True)
class RestoredName:
    """A name, and what is said of it."""

    host: str
    """The path on the host."""
    how: str
    """In which way, or why not."""


@dataclass(frozen=True)
class Restored:
    """What an undo, redo or apply did, or would do."""

    set: int | None
    """The set that it made, by which it can be undone itself; none if it was only tried."""
    names: int
    """How many names it brought back."""
    done: list[RestoredName]
    """What it brought back, and in which way: the first thousand."""
    conflicts: list[ChangeConflict]
    """Where the user has changed something since, and what was done about it."""
    lost: list[RestoredName]
    """What could not be brought back, and why."""


@dataclass(frozen=True)
class ChangedBy:
    """A program that changed something."""

    set: int
    """The set that the change belongs to."""
    process: int
    """The process, by its id in the session."""
    argv: list[str]
    """Its words when it was seen, as far as they are kept."""


ChangedFile = Literal["file", "folder", "link", "other"]
"""What a changed name is.

``file``: a file. ``folder``: a folder. ``link``: a symbolic link. ``other``: a pipe, a socket
or a device.
"""


ChangeKind = Literal["added", "modified", "deleted", "renamed", "attributes"]
"""What became of a name.

``added``: it is new. ``modified``: its contents are others. ``deleted``: it is gone.
``renamed``: it had another name. ``attributes``: only its mode, owner, times or attributes
are others.
"""


MarkKind = Literal["not-undoable", "runs-here", "protected", "conflict", "refused-type"]
"""What a mark is about.

``not-undoable``: it cannot be undone. ``runs-here``: the host may execute it. ``protected``:
its name is protected. ``conflict``: the user has changed it since. ``refused-type``: it is of
a type that is refused, which was not seen before it was written.
"""


@dataclass(frozen=True)
class ChangeMark:
    """What a person should know about a change."""

    mark: MarkKind
    """What it is about."""
    reason: str | None
    """Why, where that is not obvious."""


@dataclass(frozen=True)
class Change:
    """One name that is not as it was."""

    grant: str
    """The grant's name."""
    path: str
    """The path below the granted folder."""
    host: str
    """The path on the host."""
    kind: ChangeKind
    """What became of it."""
    from_: str | None
    """The path it had, below the same folder, if it was renamed."""
    modified: bool
    """Whether its contents are others; of what was renamed, too."""
    file: ChangedFile
    """What it is."""
    before: int | None
    """Its size before, of files."""
    after: int | None
    """Its size now."""
    sets: list[int]
    """In which sets it changed."""
    by: list[ChangedBy]
    """Which programs changed it, in the order in which they did; of many the last sixteen."""
    marks: list[ChangeMark]
    """What a person should know."""


@dataclass(frozen=True)
class Changes:
    """What changed in a session's granted folders."""

    session: str
    """The session."""
    sets: list[ChangeSet]
    """The sets that were looked at, the oldest first."""
    changes: list[Change]
    """Every name that is not as it was, by grant and path."""

    def __iter__(self) -> Iterator[Change]:
        """Each change."""
        return iter(self.changes)

    def __len__(self) -> int:
        return len(self.changes)


@dataclass(frozen=True)
class Difference:
    """The difference of one name's contents."""

    change: Change
    """The change."""
    text: str | None
    """In unified form, of text."""
    note: str | None
    """What is said instead of it."""


@dataclass(frozen=True)
class Discarded:
    """The staged changes of which folders were thrown away."""

    folders: list[ChangedFolder]
    """The folders."""


RuleOrigin = Literal["default", "session", "always"]
"""Where a rule about names comes from.

``default``: every session has it. ``session``: the user made it for this session. ``always``:
the user said so for always, about the folder.
"""


NamePolicy = Literal["allow", "flag", "ask", "deny"]
"""What happens to a change of a protected name.

Later ones are stricter. ``allow``: nothing. ``flag``: it is marked among the changes.
``ask``: the user is asked. ``deny``: it is refused.
"""


@dataclass(frozen=True)
class ProtectedName:
    """A rule about names."""

    pattern: str
    """Which names: components with ``*``, ``?`` and ``**``, at any depth unless it starts with
    ``/``.
    """
    policy: NamePolicy
    """What happens to changes."""
    reason: str
    """Why."""
    grant: str | None
    """The granted folder it is about; all if there is none."""
    origin: RuleOrigin
    """Where it comes from."""


OnConflict = Literal["refuse", "ours", "theirs", "both"]
"""What to do where the user has changed something since.

``refuse``: do nothing at all, and say where. ``ours``: leave what the user has now.
``theirs``: bring back what was; what the user has now can be had again by a redo. ``both``:
bring back what was, and keep what the user has now beside it under another name.
"""
