"""Tests that are coroutines."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


def aio(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a coroutine as a test, within two minutes."""

    @functools.wraps(test)
    def runs(**fixtures: Any) -> None:
        asyncio.run(asyncio.wait_for(test(**fixtures), 120))

    return runs
