# Made by tools/answers.py from docs/openapi.json; change that.
"""Files of a session."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

__all__ = ["FileEntry"]


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
