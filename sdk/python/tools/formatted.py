"""Puts text that is made into the order that all text here has."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

SETTINGS = Path(__file__).resolve().parent.parent / "pyproject.toml"


def formatted(texts: dict[Path, str]) -> dict[Path, str]:
    """Sort imports and lists of names, and lay out lines, of all files at once."""
    with tempfile.TemporaryDirectory() as name:
        places = {path: Path(name, f"{number}.py") for number, path in enumerate(texts)}
        for path, place in places.items():
            place.write_text(texts[path])
        fix = ["check", "--select", "I,RUF022", "--fix-only", "--unsafe-fixes"]
        for order in (fix, ["format"]):
            ruff = [sys.executable, "-m", "ruff", *order, "--quiet", "--no-cache"]
            subprocess.run([*ruff, "--config", str(SETTINGS), name], check=True)
        return {path: place.read_text() for path, place in places.items()}


def settle(texts: dict[Path, str], *, check: bool) -> list[Path]:
    """Write what differs from what is there; if it is only to be checked, say what differs."""
    stale = []
    for path, text in formatted(texts).items():
        if not path.exists() or path.read_text() != text:
            if check:
                stale.append(path)
            else:
                path.write_text(text)
    return stale
