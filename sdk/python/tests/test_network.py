"""The network, with a server on this host's loopback."""

from __future__ import annotations

import http.server
import json
import threading
import urllib.request
from typing import TYPE_CHECKING

import pytest

from cowork import (
    AsyncClient,
    AsyncSession,
    Client,
    Network,
    NotFound,
    OwnSecret,
    Request,
    Rule,
    Session,
)
from cowork.types import SecretFile

from .aio import aio

if TYPE_CHECKING:
    from collections.abc import Iterator


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    seen: list[str]


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.seen.append(self.headers.get("Authorization", ""))
        self.send_response(200)
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"hello\n")

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server(("127.0.0.1", 0), Handler)
    server.seen = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def get(port: int) -> str:
    return f"curl -s --max-time 10 http://host.cowork.internal:{port}/x"


def test_a_host_is_allowed_and_refused_while_the_session_runs(server: Server) -> None:
    port = server.server_port
    with Session.create(network=["example.com"]) as session:
        assert "hello" not in session.run(get(port)).stdout
        info = session.network.allow(f"host:{port}")
        assert session.run(get(port), check=True).stdout == "hello\n"
        name = next(rule.name for rule in info.rules if str(port) in rule.rule.host)
        assert [traffic.host for traffic in session.network.traffic().hosts]
        assert session.network.refused()
        assert session.network.flows() == []
        session.network.remove(name)
        assert "hello" not in session.run(get(port)).stdout
        session.network.deny("evil.example", reason="use outputs instead")
        found = session.network.explain("https://evil.example/x")
        assert (found.outcome, found.code) == ("deny", "denied-by-rule")
        session.network.ask(Rule("maybe.example"))
        assert session.network.explain("https://maybe.example").outcome == "ask"
        session.network.change(otherwise="ask", presets=["pypi"])
        shown = session.network.show()
        assert (shown.otherwise, shown.presets) == ("ask", ["pypi"])
        assert {rule.rule.action for rule in session.network.rules()} == {"allow", "ask", "deny"}


def test_rules_may_have_details(server: Server) -> None:
    wanted = Network(rules=[Rule(f"host:{server.server_port}", methods=["GET"])], otherwise="deny")
    with Session.create(network=wanted) as session:
        assert session.run(get(server.server_port)).stdout == "hello\n"
        refused = session.run(f"{get(server.server_port)} -X POST -d x")
        assert "hello" not in refused.stdout


def test_without_a_network_there_is_none(session: Session, server: Server) -> None:
    assert session.info.network is None
    assert session.run(get(server.server_port)).exit_code != 0


def test_a_port_of_the_session_is_published() -> None:
    script = "import http.server as h; h.test(h.SimpleHTTPRequestHandler, port=8000)"
    with Session.create(network=[]) as session:
        with session.exec(["python3", "-u", "-c", script], cwd="mnt/outputs") as process:
            next(process)
            session.files.write("outputs/page", "from inside")
            port = session.network.publish(8000)
            with urllib.request.urlopen(f"http://127.0.0.1:{port.outside}/page") as answer:
                assert answer.read() == b"from inside"
            assert session.network.show().published == [port]
            session.network.unpublish(port.outside)
            with pytest.raises(NotFound):
                session.network.unpublish(port.outside)


def test_a_session_uses_a_secret_that_it_does_not_know(client: Client, server: Server) -> None:
    host = f"host:{server.server_port}"
    secret = client.secrets.set("sdk-key", "real-value", hosts=[host], variable="SDK_KEY")
    assert (secret.name, secret.hosts, secret.variable) == ("sdk-key", [host], "SDK_KEY")
    assert "real-value" not in json.dumps([vars(one) for one in client.secrets.list()], default=str)
    try:
        with Session.create(secrets=["sdk-key"], network=[host]) as session:
            placeholder = session.run("printf %s $SDK_KEY").stdout
            assert placeholder
            assert "real-value" not in session.run("env").stdout
            command = f'{get(server.server_port)} -H "Authorization: Bearer $SDK_KEY"'
            session.run(command, check=True)
            # It is put into requests over TLS only, and over nothing else is even tried.
            assert [refusal.code for refusal in session.network.refused()] == [
                "plaintext-credential"
            ]
            assert server.seen == []
            assert client.secrets.list()[0].sessions == [session.id]
    finally:
        client.secrets.remove("sdk-key")
    assert client.secrets.list() == []


def test_a_host_that_no_rule_is_about_is_asked_about(server: Server) -> None:
    with Session.create(network=Network(otherwise="ask")) as session:
        seen: list[str] = []

        def decide(request: Request) -> str:
            seen.append(request.kind)
            return "allow_once"

        session.on_request(decide)
        session.network.ask(f"host:{server.server_port}")
        assert session.run(get(server.server_port)).stdout == "hello\n"
        assert seen == ["host"]


def test_a_session_has_a_secret_of_its_own(client: Client, server: Server) -> None:
    host = f"host:{server.server_port}"
    secret = OwnSecret(
        "sdk-own",
        "real-value",
        hosts=(host,),
        variable="SDK_KEY",
        files=(SecretFile(".token", "token={secret}\n"),),
    )
    assert "real-value" not in repr(secret)
    with Session.create(secrets=[secret], network=[host]) as session:
        placeholder = session.run("printf %s $SDK_KEY", check=True).stdout
        assert session.run("cat .token", check=True).stdout == f"token={placeholder}\n"
        key = '-H "Authorization: Bearer $SDK_KEY"'
        session.run(f"{get(server.server_port)} {key}", check=True)
        assert [one.code for one in session.network.refused()] == ["plaintext-credential"]
        session.run(get(server.server_port), check=True)
        assert server.seen == [""]
        assert session.network.har()["log"]["version"] == "1.2"
    assert client.secrets.list() == []


@aio
async def test_asyncio_has_the_network_and_secrets() -> None:
    async with AsyncClient() as client:
        await client.secrets.set("sdk-other", "v", hosts=["a.example"])
        async with AsyncSession.create(network=["a.example"], client=client) as session:
            assert (await session.network.explain("https://a.example")).outcome == "allow"
            await session.network.deny("a.example")
            assert (await session.network.explain("https://a.example")).outcome == "deny"
            assert (await session.network.traffic()).flows == []
        await client.secrets.remove("sdk-other")
        assert await client.secrets.list() == []
