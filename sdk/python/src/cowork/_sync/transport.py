"""Requests over the daemon's UNIX socket, for threads.

A connection that is idle is kept for the next request, and keeps the daemon from leaving. Nothing
is sent again that could have had an effect: what the daemon has not read had none. Every object
here may be used by several threads, except that one stream has one reader.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from typing import TYPE_CHECKING, cast

from .. import _places, _wire
from .._wire import Answer, Call, Frames
from ..errors import ConnectionLost, DaemonUnavailable, ProtocolError, from_answer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PIECE = 256 * 1024

INFO = Call("GET", "/v1/info")


class Unanswered(ConnectionLost):
    """The daemon closed the connection before anything of an answer came."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__("the daemon closed the connection", code="lost")
        self.unread = isinstance(cause, ConnectionResetError | BrokenPipeError) and bool(
            cause.errno
        )
        """Whether it is certain that the daemon has not read the request to its end.

        A UNIX socket says so: it is reset when its other end is closed while something waits there
        to be read, as it is where nobody has accepted the connection yet. Otherwise it just ends.
        """


class Connection:
    """A connection to the daemon."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(path)
        except OSError:
            self._socket.close()
            raise

    def exchange(self, request: Call) -> Answer:
        """Send a request, and read the head of its answer."""
        failed: OSError | None = None
        try:
            self._socket.sendall(request.start())
            if request.upload is not None:
                for piece in cast("Iterable[bytes]", request.upload):
                    if piece:
                        self._socket.sendall(_wire.chunk(piece))
                self._socket.sendall(_wire.chunk(b""))
        except (BrokenPipeError, ConnectionResetError) as error:
            # A daemon that refuses an upload answers before it has read all of it.
            failed = error
        answer = Answer()
        while not answer.head():
            try:
                self.feed(answer)
            except Unanswered as error:
                raise error if failed is None or error.unread else Unanswered(failed) from failed
        if failed is not None and answer.status < 400:
            raise _lost(failed)
        return answer

    def feed(self, answer: Answer) -> None:
        """Read once more of an answer."""
        try:
            answer.feed(self._socket.recv(PIECE))
        except (OSError, EOFError) as error:
            if answer.is_untouched:
                raise Unanswered(error) from error
            raise _lost(error) from error

    def whole(self, answer: Answer) -> bytes:
        """Read the body of an answer to its end."""
        pieces = [answer.take()]
        while not answer.done:
            self.feed(answer)
            pieces.append(answer.take())
        return b"".join(pieces)

    def is_stale(self) -> bool:
        """Whether the daemon has closed it meanwhile."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def receive(self) -> bytes:
        """Read some bytes; none means that the daemon has closed it."""
        try:
            return self._socket.recv(PIECE)
        except OSError:
            return b""

    def ready(self, *, reading: bool) -> bool:
        """Wait until it can be written to, or read from if that is wanted; whether it can be read.

        Reading comes first, so that the daemon, which may wait for us to read, goes on.
        """
        poll = select.poll()
        poll.register(self._socket, select.POLLOUT | (select.POLLIN if reading else 0))
        [(_, events)] = poll.poll()
        return reading and bool(events & ~select.POLLOUT)

    def send_some(self, data: memoryview) -> int:
        """Send as much as there is room for."""
        try:
            return self._socket.send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise _lost(error) from error

    def close(self) -> None:
        """Close it; whoever waits in it wakes up."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        finally:
            self._socket.close()


def _lost(error: BaseException) -> ConnectionLost:
    return ConnectionLost("the connection to the daemon broke off", code="lost", detail=str(error))


def greet(path: str) -> Connection | None:
    """Connect if a daemon answers.

    One that is about to leave may still listen; with a client that it has answered it stays.
    """
    try:
        connection = Connection(path)
    except (FileNotFoundError, ConnectionRefusedError):
        return None
    except OSError as error:
        sentence = f"cannot connect to `{path}`"
        raise DaemonUnavailable(sentence, code="no-connection", detail=error.strerror) from error
    try:
        connection.whole(connection.exchange(INFO))
    except ConnectionLost:
        connection.close()
        return None
    return connection


def ensure(place: _places.Place) -> Connection:
    """Connect; the daemon is started first if there is none."""
    found = greet(place.socket)
    if found is not None:
        return found

    def answers() -> bool:
        nonlocal found
        found = greet(place.socket)
        return found is not None

    _places.start(place, answers)
    return cast("Connection", found)


class Body:
    """The body of an answer, as it comes."""

    def __init__(self, connection: Connection, answer: Answer) -> None:
        self._connection = connection
        self._answer = answer
        self._closed = False
        self.headers = answer.headers

    def read(self) -> bytes:
        """The next bytes; none at the end."""
        while not self._closed:
            data = self._answer.take()
            if data:
                return data
            if self._answer.done:
                break
            try:
                self._connection.feed(self._answer)
            except ConnectionLost:
                if not self._closed:
                    raise
        return b""

    def __iter__(self) -> Iterator[bytes]:
        while data := self.read():
            yield data

    def close(self) -> None:
        """Leave the rest unread."""
        self._closed = True
        self._connection.close()


class Wire:
    """A connection that speaks frames. One thread may read while another writes."""

    def __init__(self, connection: Connection, rest: bytes) -> None:
        self._connection = connection
        self._frames = Frames(rest)
        self._reading = threading.Lock()
        self._writing = threading.Lock()

    def receive(self) -> tuple[int, bytes] | None:
        """The next frame, or none if the daemon has closed the connection."""
        with self._reading:
            while True:
                found = self._frames.next()
                if found is not None:
                    return found
                data = self._connection.receive()
                if not data:
                    return None
                self._frames.feed(data)

    def send(self, channel: int, data: bytes) -> None:
        """Send a frame. What comes meanwhile is kept if nobody reads."""
        rest = memoryview(_wire.frame(channel, data))
        with self._writing:
            while rest:
                alone = self._reading.acquire(blocking=False)
                try:
                    if not self._connection.ready(reading=alone):
                        rest = rest[self._connection.send_some(rest) :]
                    elif piece := self._connection.receive():
                        self._frames.feed(piece)
                    else:
                        raise _lost(BrokenPipeError())
                finally:
                    if alone:
                        self._reading.release()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class Transport:
    """Asks one daemon."""

    def __init__(self, place: _places.Place) -> None:
        self._place = place
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        self._process = os.getpid()

    def _take(self) -> Connection | None:
        with self._lock:
            if self._process != os.getpid():
                # These connections are the parent's.
                self._process = os.getpid()
                self._idle.clear()
            while self._idle:
                connection = self._idle.pop()
                if not connection.is_stale():
                    return connection
                connection.close()
        return None

    def _give(self, connection: Connection) -> None:
        with self._lock:
            self._idle.append(connection)

    def _fresh(self) -> Connection:
        """Connect, to a daemon that stays."""
        held = self._take()
        if held is None:
            return ensure(self._place)
        self._give(held)
        try:
            return Connection(self._place.socket)
        except (FileNotFoundError, ConnectionRefusedError):
            return ensure(self._place)
        except OSError as error:
            sentence = f"cannot connect to `{self._place.socket}`"
            raise DaemonUnavailable(
                sentence, code="no-connection", detail=error.strerror
            ) from error

    def call(self, request: Call) -> bytes:
        """Ask, and read the whole answer."""
        connection, answer = self._ask(self._take() or ensure(self._place), request)
        try:
            body = connection.whole(answer)
        except BaseException:
            connection.close()
            raise
        if answer.keeps_open:
            self._give(connection)
        else:
            connection.close()
        if answer.status >= 400:
            raise from_answer(answer.status, body)
        return body

    def open(self, request: Call) -> Body:
        """Ask over a connection of its own, and leave the body to be read."""
        return Body(*self._good(request))

    def upgrade(self, request: Call) -> Wire:
        """Ask for a connection that speaks frames."""
        request.headers.update({"Connection": "Upgrade", "Upgrade": _wire.PROTOCOL})
        connection, answer = self._good(request)
        if answer.status != 101:
            connection.close()
            raise ProtocolError("the daemon did not change the protocol", code="garbled")
        return Wire(connection, answer.rest())

    def _good(self, request: Call) -> tuple[Connection, Answer]:
        connection, answer = self._ask(self._fresh(), request)
        if answer.status < 400:
            return connection, answer
        try:
            raise from_answer(answer.status, connection.whole(answer))
        finally:
            connection.close()

    def _ask(self, connection: Connection, request: Call) -> tuple[Connection, Answer]:
        """Send a request, once more if the first time cannot have had an effect."""
        try:
            return connection, connection.exchange(request)
        except Unanswered as error:
            connection.close()
            if not request.may_be_repeated(unread=error.unread):
                raise
        except BaseException:
            connection.close()
            raise
        connection = ensure(self._place)
        try:
            return connection, connection.exchange(request)
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        """Let go of idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        if self._process == os.getpid():
            for connection in idle:
                connection.close()
