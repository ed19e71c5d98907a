# Made by tools/answers.py from docs/openapi.json; change that.
"""Files of a session."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

__all__ = ["FileChange", "FileChangeKind", "FileEntry"]


@dataclass(frozen=True)
class FileEntry:
    """A file or folder of a session."""

    name: str
    """Its name."""
    kind: Literal["file", "folder", "link", "other"]
    """``file``, ``folder``, ``link`` or ``other``."""
    size: int
    """Bytes."""
    modified: datetime
    """When it was changed."""


FileChangeKind = Literal["created", "changed", "written", "removed", "moved"]
"""What happened to a file or folder.

``created``: it is there now. ``changed``: its contents are others. ``written``: whoever could
write to it has closed it. ``removed``: it is there no more. ``moved``: it came from another
place that is watched.
"""


@dataclass(frozen=True)
class FileChange:
    """Something that changed in a folder of a session."""

    kind: FileChangeKind
    """What happened."""
    path: str
    """Where, below the folder that is watched."""
    folder: bool
    """Whether it is a folder."""
    from_: str | None = None
    """Where it was before, if it was moved."""
