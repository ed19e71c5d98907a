"""What threads and asyncio do differently."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, cast

from ..errors import ConnectionLost

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator
    from types import TracebackType

    from .transport import AsyncWire

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")

if TYPE_CHECKING:
    Callback = Callable[[T], R | Awaitable[R]]


class _Closing(Protocol):
    async def __aenter__(self) -> Any: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


C = TypeVar("C", bound=_Closing)


async def call(callback: Callable[[T], R | Awaitable[R]], value: T) -> R:
    """Call back, and wait if there is something to wait for."""
    result = callback(value)
    return cast("R", await result if inspect.isawaitable(result) else result)


class Opening(Generic[C]):
    """Something that can be awaited, or entered with ``async with``."""

    def __init__(self, work: Coroutine[Any, Any, C]) -> None:
        self._work = work
        self._opened: C | None = None

    def __await__(self) -> Generator[Any, Any, C]:
        return self._work.__await__()

    async def __aenter__(self) -> C:
        self._opened = await self._work
        return cast("C", await self._opened.__aenter__())

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._opened is not None:
            await self._opened.__aexit__(kind, error, trace)


def opening(function: Callable[P, Coroutine[Any, Any, C]]) -> Callable[P, Opening[C]]:
    """Let what a function gives be awaited, or entered."""

    @functools.wraps(function)
    def opens(*arguments: P.args, **options: P.kwargs) -> Opening[C]:
        return Opening(function(*arguments, **options))

    return opens


class Task:
    """Something that goes on beside."""

    def __init__(self, work: Coroutine[Any, Any, Any]) -> None:
        self._task = asyncio.create_task(work)

    async def stop(self) -> None:
        """End it."""
        if self._task is not asyncio.current_task():
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task


def spawn(function: Callable[..., Coroutine[Any, Any, Any]], *arguments: Any) -> Task:
    """Let something go on beside."""
    return Task(function(*arguments))


_FEEDING: set[asyncio.Task[None]] = set()


async def feed(wire: AsyncWire, channel: int, data: bytes) -> None:
    """Send data and its end beside what the caller does next."""

    async def send() -> None:
        # If the connection is gone, whoever reads from it hears of that.
        with contextlib.suppress(ConnectionLost):
            if data:
                await wire.send(channel, data)
            await wire.send(channel, b"")

    task = asyncio.create_task(send())
    _FEEDING.add(task)
    task.add_done_callback(_FEEDING.discard)


async def pause(seconds: float) -> None:
    """Wait."""
    await asyncio.sleep(seconds)
