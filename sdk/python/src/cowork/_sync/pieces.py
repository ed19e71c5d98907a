"""What threads and asyncio do differently."""

from __future__ import annotations

import contextlib
import contextvars
import threading
import time
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from ..errors import ConnectionLost

if TYPE_CHECKING:
    from collections.abc import Callable

    from .transport import Wire

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")

if TYPE_CHECKING:
    Callback = Callable[[T], R]


def call(callback: Callable[[T], R], value: T) -> R:
    """Call back."""
    return callback(value)


def opening(function: Callable[P, T]) -> Callable[P, T]:
    """Leave a function as it is; its twin can be awaited or entered."""
    return function


class Task:
    """Something that goes on beside."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        context = contextvars.copy_context()
        self._thread = threading.Thread(
            target=context.run, args=(function, *arguments), name="cowork", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Wait for its end, for which the caller has given it a reason."""
        if self._thread is not threading.current_thread():
            self._thread.join()


def spawn(function: Callable[..., Any], *arguments: Any) -> Task:
    """Let something go on beside."""
    return Task(function, arguments)


def feed(wire: Wire, channel: int, data: bytes) -> None:
    """Send data and its end; what comes meanwhile is kept."""
    # If the connection is gone, whoever reads from it hears of that.
    with contextlib.suppress(ConnectionLost):
        if data:
            wire.send(channel, data)
        wire.send(channel, b"")


def pause(seconds: float) -> None:
    """Wait."""
    time.sleep(seconds)
