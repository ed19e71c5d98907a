"""Makes the package for threads from that for asyncio.

Whatever waits is written once, in ``src/cowork/_async``. What really differs is in ``transport.py``
and ``pieces.py`` of both and is not made. With ``--check`` nothing is written, and a difference is
an error.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "cowork"
OWN = {"transport.py", "pieces.py", "__init__.py"}
NOTE = "# Made by tools/twin.py from _async/{name}; change that.\n"

RULES = [
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bAsyncIterable\[bytes\]", "Iterable[bytes]"),
    (r"\bIterable\[bytes\] \| Iterable\[bytes\]", "Iterable[bytes]"),
    (
        r"from collections\.abc import AsyncIterable, Iterable",
        "from collections.abc import Iterable",
    ),
    (r"\bAsync([A-Z])", r"\1"),
    (r"\b__a(enter|exit|iter|next)__", r"__\1__"),
    (r"\baclose\b", "close"),
    (r"\bStopAsyncIteration\b", "StopIteration"),
]


def twin(source: Path) -> str:
    """The text of a module for threads."""
    text = source.read_text()
    for pattern, replacement in RULES:
        text = re.sub(pattern, replacement, text)
    return formatted(NOTE.format(name=source.name) + text)


def formatted(text: str) -> str:
    """Put imports and lines in order: names that became shorter may fit elsewhere."""
    ruff = [sys.executable, "-m", "ruff"]
    common = ["--quiet", "--stdin-filename", str(PACKAGE / "_sync" / "twin.py")]
    for words in (["check", "--select", "I", "--fix-only"], ["format"]):
        done = subprocess.run(
            [*ruff, *words, *common, "-"], input=text, capture_output=True, text=True, check=True
        )
        text = done.stdout
    return text


def main() -> int:
    """Write what is made, or compare it with what is there."""
    check = sys.argv[1:] == ["--check"]
    stale = []
    for source in sorted((PACKAGE / "_async").glob("*.py")):
        if source.name in OWN:
            continue
        made = PACKAGE / "_sync" / source.name
        text = twin(source)
        if check and (not made.exists() or made.read_text() != text):
            stale.append(source.name)
        elif not check:
            made.write_text(text)
    if stale:
        print(f"run tools/twin.py: {', '.join(stale)} changed", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
