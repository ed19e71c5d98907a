"""Measures what a call costs: through this package, by the command line, and of the daemon alone.

    COWORK_BIN=PROGRAMS python3 sdk/python/tools/overhead.py

``PROGRAMS`` is the folder with the built programs. All are measured in turns in one session.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from cowork import AsyncSession, Client, Session
from cowork._places import find_program

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 200

RUN = 'session.run(["true"])'
ASYNC_RUN = 'await session.run(["true"])'
EXEC = "cowork exec ID -- true"


def measure(work: Callable[[], object]) -> float:
    """Milliseconds that something takes."""
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1000


def main() -> None:
    """Print medians, and how a call compares to the command line."""
    program = str(find_program())
    with Client() as client, Session.create(client=client) as session, asyncio.Runner() as runner:
        twin = runner.run(connect(session.id))
        words = [program, "exec", session.id, "--", "true"]
        contenders: dict[str, Callable[[], object]] = {
            "client.info()": client.info,
            RUN: lambda: session.run(["true"]),
            ASYNC_RUN: lambda: runner.run(twin.run(["true"])),
            EXEC: lambda: subprocess.run(words, check=True),
            "plain true (fork, exec, wait)": lambda: subprocess.run(["true"], check=True),
        }
        found: dict[str, list[float]] = {name: [] for name in contenders}
        for turn in range(ROUNDS + 10):
            for name, work in contenders.items():
                taken = measure(work)
                if turn >= 10:
                    found[name].append(taken)
        medians = {name: statistics.median(times) for name, times in found.items()}
        for name, times in found.items():
            low, _, high = statistics.quantiles(times, n=4)
            print(f"{name:32} {medians[name]:8.3f} ms  (quartiles {low:.3f} to {high:.3f})")
        for name in (RUN, ASYNC_RUN):
            print(f"{name} / {EXEC}: {medians[name] / medians[EXEC]:.2f}")
        runner.run(twin.aclose())


async def connect(id: str) -> AsyncSession:
    """The same session, for asyncio."""
    return await AsyncSession.connect(id)


if __name__ == "__main__":
    print(f"{ROUNDS} rounds, Python {sys.version.split()[0]}, {os.cpu_count()} processors")
    main()
