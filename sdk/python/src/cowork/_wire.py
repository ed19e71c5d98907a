"""HTTP/1.1, frames of an attached command, and server-sent events, as bytes.

Nothing here reads or writes: bytes go in, parsed things come out. The transports for threads and
for asyncio share it, so that both understand the daemon in the same way.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote_from_bytes

from .errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Iterable, Mapping

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]

PROTOCOL = "cowork-stream/1"
"""What a connection is upgraded to that carries a command's streams."""

KEY = "Idempotency-Key"
"""The header of a request that is carried out once, however often it is sent."""

MAX_HEAD = 64 * 1024
MAX_EVENT = 4 * 1024 * 1024
MAX_FRAME = 1024 * 1024

STDIN, STDOUT, STDERR, TERMINAL, CONTROL = range(5)
"""The channels of frames."""

_FRAME = struct.Struct(">BI")


def segment(name: str | bytes) -> str:
    """Escape one segment of a target; no name reaches beyond its place."""
    name = name if isinstance(name, bytes) else name.encode(errors="surrogateescape")
    if name in {b".", b".."}:
        return name.decode().replace(".", "%2E")
    return quote_from_bytes(name, safe="")


def path(name: str) -> str:
    """Escape several segments; each ``/`` stays one."""
    return "/".join(segment(part) for part in name.split("/"))


def target(base: str, query: Mapping[str, object] | None = None) -> str:
    """Join a path that is escaped already and a query; what is ``None`` is left out."""
    pairs: list[str] = []
    for name, value in (query or {}).items():
        if value is None:
            continue
        text = str(value).lower() if isinstance(value, bool) else str(value)
        value_bytes = text.encode(errors="surrogateescape")
        pairs.append(f"{segment(name)}={quote_from_bytes(value_bytes, safe=':,/')}")
    return f"{base}?{'&'.join(pairs)}" if pairs else base


@dataclass(frozen=True)
class Call:
    """A request. Its body is bytes, or comes in pieces."""

    method: Method
    target: str
    body: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    upload: Iterable[bytes] | AsyncIterable[bytes] | None = None

    @classmethod
    def json(cls, method: Method, target: str, body: object) -> Call:
        """Make a request with a body of JSON."""
        text = json.dumps(body, separators=(",", ":")).encode()
        return cls(method, target, text, {"Content-Type": "application/json"})

    def may_be_repeated(self, *, unread: bool) -> bool:
        """Whether asking again is the same as asking once, after the connection broke.

        It is if the daemon has not read the request, if the method says so, and if the request has
        a key by which the daemon knows it again.
        """
        if self.upload is not None:
            return False
        return unread or self.method in {"GET", "PUT", "DELETE"} or KEY in self.headers

    def start(self) -> bytes:
        """Everything up to the pieces of the body, and all of it if it is bytes."""
        lines = [f"{self.method} {self.target} HTTP/1.1", "Host: cowork"]
        for name, value in self.headers.items():
            lines.append(f"{name}: {''.join(c for c in value if c.isprintable())}")
        if self.upload is not None:
            lines.append("Transfer-Encoding: chunked")
        elif self.body is not None or self.method in {"POST", "PUT", "PATCH"}:
            lines.append(f"Content-Length: {len(self.body or b'')}")
        return "\r\n".join([*lines, "", ""]).encode("ascii") + (self.body or b"")


def chunk(data: bytes) -> bytes:
    """One piece of a body that comes in pieces; an empty one ends it."""
    return b"%x\r\n%s\r\n" % (len(data), data)


class Answer:
    """An answer that is parsed as it arrives."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.done = False
        self._buffer = bytearray()
        self._left: int | None = None
        self._chunked = False
        self._started = False

    @property
    def is_untouched(self) -> bool:
        """Whether nothing of it has come."""
        return not self._started

    @property
    def keeps_open(self) -> bool:
        """Whether the connection can be used for another request."""
        closes = self.headers.get("connection", "").lower() == "close"
        return self.done and not closes and not self._buffer

    def feed(self, data: bytes) -> None:
        """Take what was read; nothing at all means that the other side has closed."""
        if data:
            self._started = True
            self._buffer += data
        elif self.status and not self._chunked and self._left is None:
            self.done = True
        elif not self.done:
            raise EOFError

    def head(self) -> bool:
        """Whether the head has been read."""
        while not self.status:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                if len(self._buffer) > MAX_HEAD:
                    raise ProtocolError("an answer's head is too long", code="garbled")
                return False
            lines = bytes(self._buffer[:end]).decode("latin-1").split("\r\n")
            del self._buffer[: end + 4]
            self._parse(lines)
        return True

    def _parse(self, lines: list[str]) -> None:
        version, _, rest = lines[0].partition(" ")
        number = rest[:3]
        if not version.startswith("HTTP/1.") or not number.isdigit():
            raise ProtocolError("an answer is not HTTP", code="garbled")
        status = int(number)
        # Interim answers say nothing that is waited for here.
        if 100 <= status < 200 and status != 101:
            return
        for line in lines[1:]:
            name, _, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()
        self.status = status
        length = self.headers.get("content-length")
        if status in {101, 204, 304}:
            self._left = 0
        elif "transfer-encoding" in self.headers:
            if self.headers["transfer-encoding"].lower() != "chunked":
                raise ProtocolError("an answer has an unknown transfer coding", code="garbled")
            self._chunked = True
        elif length is not None:
            if not length.isdigit():
                raise ProtocolError("an answer has no valid length", code="garbled")
            self._left = int(length)
        self.done = self._left == 0

    def take(self) -> bytes:
        """The part of the body that has come since the last time."""
        if self.done:
            return b""
        if self._chunked:
            return self._chunks()
        most = len(self._buffer) if self._left is None else min(self._left, len(self._buffer))
        data = bytes(self._buffer[:most])
        del self._buffer[:most]
        if self._left is not None:
            self._left -= most
            self.done = self._left == 0
        return data

    def _chunks(self) -> bytes:
        found: list[bytes] = []
        while not self.done:
            if not self._left:
                end = self._buffer.find(b"\r\n")
                if end < 0:
                    break
                if self._left == 0:  # The end of a chunk's data.
                    if end:
                        raise ProtocolError("a chunk is longer than it says", code="garbled")
                    del self._buffer[:2]
                    self._left = None
                    continue
                try:
                    size = int(bytes(self._buffer[:end]).partition(b";")[0], 16)
                except ValueError:
                    raise ProtocolError("a chunk has no valid length", code="garbled") from None
                if size == 0:
                    if not self._trailer(end + 2):
                        break
                    self.done = True
                    break
                del self._buffer[: end + 2]
                self._left = size
            data = bytes(self._buffer[: self._left])
            if not data:
                break
            del self._buffer[: len(data)]
            self._left -= len(data)
            found.append(data)
        return b"".join(found)

    def _trailer(self, start: int) -> bool:
        """Drop the last chunk and what stands behind it, if all of that has come."""
        while True:
            end = self._buffer.find(b"\r\n", start)
            if end < 0:
                return False
            if end == start:
                del self._buffer[: end + 2]
                return True
            start = end + 2

    def rest(self) -> bytes:
        """What was read beyond the answer, for the protocol that it has changed to."""
        data = bytes(self._buffer)
        self._buffer.clear()
        return data


def frame(channel: int, data: bytes) -> bytes:
    """Make the frames of some data, at least one."""
    pieces = [data[at : at + MAX_FRAME] for at in range(0, len(data), MAX_FRAME)] or [b""]
    return b"".join(_FRAME.pack(channel, len(piece)) + piece for piece in pieces)


class Frames:
    """Frames that are parsed as they arrive."""

    def __init__(self, data: bytes = b"") -> None:
        self._buffer = bytearray(data)

    def feed(self, data: bytes) -> None:
        """Take what was read."""
        self._buffer += data

    def next(self) -> tuple[int, bytes] | None:
        """The next whole frame: its channel, and what it carries."""
        if len(self._buffer) < _FRAME.size:
            return None
        channel, length = _FRAME.unpack_from(self._buffer)
        if channel > CONTROL or length > MAX_FRAME:
            raise ProtocolError("a frame cannot be understood", code="garbled")
        end = _FRAME.size + length
        if len(self._buffer) < end:
            return None
        data = bytes(self._buffer[_FRAME.size : end])
        del self._buffer[:end]
        return channel, data


class EventLines:
    """The events in the lines of a stream (HTML Standard, "Server-sent events")."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._name = ""
        self._data: list[str] = []

    def feed(self, data: bytes) -> None:
        """Take what was read."""
        self._buffer += data
        if len(self._buffer) > MAX_EVENT:
            raise ProtocolError("an event is too long", code="garbled")

    def next(self) -> tuple[str, Any] | None:
        """The next whole event: its name, and its data."""
        while (end := self._buffer.find(b"\n")) >= 0:
            line = bytes(self._buffer[:end]).decode(errors="replace").removesuffix("\r")
            del self._buffer[: end + 1]
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "data":
                self._data.append(value)
            elif name == "event":
                self._name = value
            elif not line:
                found, self._name, data, self._data = self._name, "", self._data, []
                if data:
                    return found, decoded("\n".join(data))
        return None


def decoded(text: str | bytes) -> Any:
    """Read JSON."""
    try:
        return json.loads(text)
    except ValueError:
        raise ProtocolError("an answer is not JSON", code="garbled") from None
