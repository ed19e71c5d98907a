from __future__ import annotations

import json
import logging
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from cowork import AsyncRequest, AsyncSession, Client, Conflict, InvalidRequest, Request, Session

from .aio import aio
from .conftest import until

if TYPE_CHECKING:
    from pathlib import Path


def ask(wait: int = 30, wanted: str = "the invoices") -> str:
    body = json.dumps({"wanted": wanted, "reason": "to add them up", "wait": wait})
    return f"curl -s --unix-socket $COWORK_REQUESTS http://cowork/v1/ask --json '{body}'"


def asked(session: Session) -> Any:
    return json.loads(session.run(ask(), check=True).stdout)


def test_a_callback_grants_what_a_session_asks_for(session: Session, folder: Path) -> None:
    (folder / "may").write_text("12.50\n")
    seen: list[Request] = []

    def decide(request: Request) -> None:
        seen.append(request)
        request.allow_once(folder, name="invoices", access="ro", note="here you are")

    session.on_request(decide)
    answer = asked(session)
    assert (answer["state"], answer["access"], answer["note"]) == ("allowed", "ro", "here you are")
    assert session.run(f"cat {answer['at']}/may").stdout == "12.50\n"
    assert (seen[0].wanted, seen[0].kind, seen[0].session) == (
        "the invoices", "folder", session.id,
    )  # fmt: skip
    [request] = session.requests.list(state="allowed")
    assert (request.decision, request.grant) == ("allow_once", "invoices")
    assert session.requests.list() == []


def test_a_callback_may_give_its_decision_back(session: Session) -> None:
    with session.on_request(lambda _: "reject_once"):
        assert asked(session)["state"] == "rejected"
    answer = json.loads(session.run(ask(0, "something else")).stdout)
    assert answer["state"] == "pending"
    time.sleep(0.2)
    [request] = session.requests.list()
    assert request.reject_always(note="never").note == "never"
    with pytest.raises(Conflict) as caught:
        request.reject_once()
    assert caught.value.code == "answered"
    assert session.requests.get(request.id).state == "rejected"


def test_what_waits_already_is_answered_too(session: Session, folder: Path) -> None:
    process = session.exec(ask())
    until(session.requests.list)
    assert session.status().pending == 1
    [request] = session.requests.list()
    with pytest.raises(InvalidRequest) as caught:
        request.allow_once()
    assert caught.value.code == "no-path"
    session.on_request(lambda request: request.allow_session(folder))
    assert json.loads(process.wait().stdout)["state"] == "allowed"


def test_a_folder_is_asked_for_on_behalf_of_a_session(
    session: Session, client: Client, folder: Path
) -> None:
    asked = session.requests.ask("the invoices", "to add them up", path=folder)
    assert asked.state == "pending"
    [request] = session.requests.list()
    request.allow_once(folder, name="invoices")
    answered = session.requests.asked(asked.id, wait=5)
    assert (answered.state, answered.access) == ("allowed", "ro")
    assert answered.at == f"/sessions/{session.id}/mnt/invoices"
    with pytest.raises(InvalidRequest):
        client.requests.ask("anything", "for nobody")


def test_a_callback_that_fails_is_logged_and_others_go_on(
    session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    failed = threading.Event()

    def decide(_: Request) -> str:
        if not failed.is_set():
            failed.set()
            raise ZeroDivisionError
        return "reject_once"

    session.on_request(decide)
    with caplog.at_level(logging.ERROR, "cowork"):
        json.loads(session.run(ask(wait=0)).stdout)
        assert asked(session)["state"] == "rejected"
    assert "could not be answered" in caplog.text


def test_a_client_hears_all_sessions(client: Client, session: Session) -> None:
    with client.requests.subscribe(lambda _: "reject_once"), Session.create() as other:
        assert asked(session)["state"] == "rejected"
        assert asked(other)["state"] == "rejected"
    assert {request.session for request in client.requests.list(None)} >= {session.id}


@aio
async def test_asyncio_answers_by_a_coroutine(folder: Path) -> None:
    async def decide(request: AsyncRequest) -> None:
        await request.allow_once(folder, access="ro")

    async with AsyncSession.create() as session:
        subscription = await session.on_request(decide)
        answer = json.loads((await session.run(ask())).stdout)
        assert answer["state"] == "allowed"
        await subscription.aclose()
        await session.on_request(lambda _: "reject_once")
        assert json.loads((await session.run(ask())).stdout)["state"] == "rejected"
