"""Makes the package for threads from that for asyncio.

Whatever waits is written once, in ``src/cowork/_async``. What really differs is in ``transport.py``
and ``pieces.py`` of both and is not made. With ``--check`` nothing is written, and a difference is
an error.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from formatted import settle

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "cowork"
OWN = {"transport.py", "pieces.py", "__init__.py"}
NOTE = "# Made by tools/twin.py from _async/{name}; change that.\n"

RULES = [
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\banext\(", "next("),
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
    return NOTE.format(name=source.name) + text


def main() -> int:
    """Write what is made, or compare it with what is there."""
    sources = [path for path in (PACKAGE / "_async").glob("*.py") if path.name not in OWN]
    texts = {PACKAGE / "_sync" / source.name: twin(source) for source in sorted(sources)}
    kept = {*texts, *(PACKAGE / "_sync" / name for name in OWN)}
    stale = [path for path in (PACKAGE / "_sync").glob("*.py") if path not in kept]
    stale += settle(texts, check=sys.argv[1:] == ["--check"])
    if stale:
        names = ", ".join(sorted(path.name for path in stale))
        print(f"run tools/twin.py, and remove what is not made any more: {names}")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
