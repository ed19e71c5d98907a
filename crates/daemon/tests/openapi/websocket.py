"""Attaches to commands with a WebSocket client of others' making, over the socket and over TCP.

Told by arguments: the socket, the address, and the token. What is not as it must be fails.
"""

import asyncio
import base64
import json
import sys
import urllib.request

import websockets
from websockets.asyncio.client import connect, unix_connect

SOCKET, ADDRESS, TOKEN = sys.argv[1:]
BEARER = {"Authorization": f"Bearer {TOKEN}"}
# As a page shows it: it can send no header of its own.
SHOWN = "cowork-token." + base64.urlsafe_b64encode(TOKEN.encode()).decode().rstrip("=")
CONTROL = b"\4"


def post(path, body):
    request = urllib.request.Request(
        f"http://{ADDRESS}/v1/sessions{path}",
        data=json.dumps(body).encode(),
        headers={**BEARER, "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


async def hear(socket, enough=lambda channels: False):
    """Everything that comes, by channel, until it is enough or the end."""
    channels = {1: b"", 2: b"", 3: b"", 4: []}
    try:
        while not enough(channels):
            message = await asyncio.wait_for(socket.recv(), 60)
            assert isinstance(message, bytes), message
            channel, contents = message[0], message[1:]
            if channel == 4:
                channels[4].append(json.loads(contents))
            else:
                channels[channel] += contents
    except websockets.ConnectionClosed as closed:
        assert closed.rcvd is not None, "it broke off"
        channels["close"] = closed.rcvd.code
    return channels


async def use(session, to):
    command = post(f"/{session}/commands", {
        "shell": 'echo first; while read line; do echo "got $line"; done; echo bad >&2; exit 3',
        "streams": {"stdin": "pipe"},
    })
    path = f"/v1/sessions/{session}/commands/{command['number']}/attach"
    async with to(f"{path}?from=0") as socket:
        await socket.send(b"\0one\n")
        heard = await hear(socket, lambda channels: b"got one\n" in channels[1])
        assert "started" in heard[4][0], heard
        # A message in pieces, and a question that is answered.
        await socket.send([b"\0t", b"w", b"o\n"])
        heard = await hear(socket, lambda channels: b"got two\n" in channels[1])
        await asyncio.wait_for(await socket.ping(b"there?"), 60)
    # Left, and found again at a place.
    async with to(f"{path}?from={len('first')}") as socket:
        await socket.send(b"\0")
        heard = await hear(socket)
        assert heard[1] == b"\ngot one\ngot two\n" and heard[2] == b"bad\n", heard
        assert heard[4][-1]["ended"]["code"] == 3 and heard["close"] == 1000, heard


async def flood(session, to):
    """Much both ways at once."""
    command = post(f"/{session}/commands", {"argv": ["cat"], "streams": {"stdin": "pipe"}})
    path = f"/v1/sessions/{session}/commands/{command['number']}/attach"
    bytes_ = bytes(range(256)) * 4096
    async with to(f"{path}?from=0") as socket:
        async def send():
            for _ in range(8):
                await socket.send(b"\0" + bytes_)
            await socket.send(b"\0")

        sent = asyncio.create_task(send())
        heard = await hear(socket)
        await sent
        assert heard[1] == bytes_ * 8 and heard["close"] == 1000, (len(heard[1]), heard[4])


async def terminal(session, to):
    command = post(f"/{session}/commands", {
        "shell": "read line; stty size",
        "streams": {"stdin": "terminal", "stdout": "terminal", "stderr": "terminal"},
    })
    path = f"/v1/sessions/{session}/commands/{command['number']}/attach"
    async with to(path) as socket:
        size = {"resize": {"columns": 101, "rows": 31}}
        await socket.send(CONTROL + json.dumps(size).encode())
        await socket.send(b"\0\n")
        heard = await hear(socket)
        assert b"31 101" in heard[3] and heard["close"] == 1000, heard


async def misuse(session, to):
    command = post(f"/{session}/commands", {"argv": ["sleep", "600"]})
    path = f"/v1/sessions/{session}/commands/{command['number']}/attach"
    for message, code in [("text", 1003), (b"\1x", 1008), (b"\0" + bytes(2**20 + 1), 1009)]:
        # Not left in good order: the daemon has hung up.
        socket = await to(path)
        await socket.send(message)
        assert (await hear(socket))["close"] == code, message[:9]
    return path


async def refused(**how):
    try:
        async with connect(**how):
            return None
    except websockets.InvalidStatus as error:
        return error.response.status_code


async def main():
    session = post("", {})["id"]

    def by_socket(path):
        return unix_connect(SOCKET, f"ws://localhost{path}", max_size=None)

    def by_address(path):
        url = f"ws://{ADDRESS}{path}"
        return connect(url, additional_headers=BEARER, max_size=None, compression="deflate")

    def as_page(path):
        return connect(f"ws://{ADDRESS}{path}", subprotocols=["cowork-stream.v1", SHOWN], max_size=None)

    for to in (by_socket, by_address, as_page):
        await use(session, to)
        await flood(session, to)
        await terminal(session, to)
        path = await misuse(session, to)
    async with as_page(path) as socket:
        assert socket.subprotocol == "cowork-stream.v1", socket.subprotocol
    url = f"ws://{ADDRESS}{path}"
    protocols = ["cowork-stream.v1", SHOWN]
    assert await refused(uri=url) == 401
    assert await refused(uri=url, subprotocols=protocols, origin="https://evil.example") == 403
    assert await refused(uri=url, subprotocols=protocols) is None


asyncio.run(main())
