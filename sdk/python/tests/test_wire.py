from __future__ import annotations

import pytest

from cowork import _wire
from cowork._wire import Answer, Call, EventLines, Frames, chunk, frame, path, segment, target
from cowork.errors import ProtocolError

CHUNKED = (
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nTrailer: t\r\n\r\n"
)


def read(pieces: list[bytes], *, close: bool = False) -> tuple[Answer, bytes]:
    answer, body = Answer(), b""
    for piece in [*pieces, *([b""] if close else [])]:
        answer.feed(piece)
        if answer.head():
            body += answer.take()
    return answer, body


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_chunks_are_found_however_they_arrive(size: int) -> None:
    pieces = [CHUNKED[at : at + size] for at in range(0, len(CHUNKED), size)]
    answer, body = read(pieces)
    assert (answer.status, body, answer.done, answer.keeps_open) == (
        200,
        b"abc0123456789",
        True,
        True,
    )


def test_a_length_is_kept_and_the_rest_is_not_the_body() -> None:
    answer, body = read([b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", b"cd"])
    assert (body, answer.done, answer.keeps_open, answer.rest()) == (b"ab", True, False, b"cd")


def test_without_a_length_the_end_is_the_end_of_the_connection() -> None:
    answer, body = read([b"HTTP/1.1 200 OK\r\n\r\nab", b"cd"], close=True)
    assert (body, answer.done) == (b"abcd", True)


@pytest.mark.parametrize(
    "text", [b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", b"HTTP/1.1 2", b""]
)
def test_an_answer_that_breaks_off_is_no_answer(text: bytes) -> None:
    with pytest.raises(EOFError):
        read([text] if text else [], close=True)


@pytest.mark.parametrize(
    "text",
    [
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
        b"a" * 70_000,
    ],
)
def test_what_is_not_http_is_refused(text: bytes) -> None:
    with pytest.raises(ProtocolError):
        read([text])


@pytest.mark.parametrize("size", [1, 4, 1000])
def test_frames_are_read_as_they_were_written(size: int) -> None:
    long = b"x" * (_wire.MAX_FRAME + 1)
    text = frame(1, b"out") + frame(2, b"") + frame(4, b"{}")
    frames, found = Frames(), []
    for at in range(0, len(text), size):
        frames.feed(text[at : at + size])
        while (one := frames.next()) is not None:
            found.append(one)
    assert found == [(1, b"out"), (2, b""), (4, b"{}")]
    frames.feed(frame(0, long))
    first, second = frames.next(), frames.next()
    assert first is not None
    assert second is not None
    assert first[1] + second[1] == long


def test_frames_that_are_none_are_refused() -> None:
    for text in (b"\x09\0\0\0\0", b"\0\xff\xff\xff\xff"):
        with pytest.raises(ProtocolError):
            Frames(text).next()


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_events_are_found_however_they_arrive(size: int) -> None:
    text = b': hello\n\nid: 1\nevent: x\ndata: {"a":\ndata: 1}\n\nid: 2\r\ndata:3\r\n\r\ndata: 4\n'
    lines, found = EventLines(), []
    for at in range(0, len(text), size):
        lines.feed(text[at : at + size])
        while (one := lines.next()) is not None:
            found.append(one)
    assert found == [("x", {"a": 1}), ("", 3)]


def test_no_name_reaches_beyond_its_place() -> None:
    assert segment("a/b?c#d e") == "a%2Fb%3Fc%23d%20e"
    assert segment("..") == "%2E%2E"
    assert path("a/../b c/\u00e9\udcff") == "a/%2E%2E/b%20c/%C3%A9%FF"
    assert target("/x", {"a": "b&c=d", "no": None, "yes": True}) == "/x?a=b%26c%3Dd&yes=true"
    head = Call("GET", "/x", headers={"A": "b\r\nC: d"}).start()
    assert head.count(b"\r\n") == 4


def test_a_request_says_how_long_its_body_is() -> None:
    assert b"Content-Length: 0\r\n" in Call("POST", "/x").start()
    assert b"Content-Length" not in Call("GET", "/x").start()
    assert (
        Call.json("PUT", "/x", {"a": 1}).start().endswith(b'\r\nContent-Length: 7\r\n\r\n{"a":1}')
    )
    assert b"chunked" in Call("PUT", "/x", upload=[b"a"]).start()
    assert chunk(b"abc") == b"3\r\nabc\r\n"
    assert chunk(b"") == b"0\r\n\r\n"
