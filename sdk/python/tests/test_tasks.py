"""Agents: `scripted.py`, which does as the prompt's words say, is in place of Claude Code."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from cowork import (
    Agent,
    AsyncSession,
    Client,
    Conflict,
    CoworkError,
    Grant,
    NotFound,
    Request,
    Session,
    TaskFailed,
    TaskMessage,
)
from cowork.host.controller import CoworkController, SandboxConfig

from .aio import aio
from .conftest import kill_daemon, until

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Site


def test_an_agent_answers_and_says_what_it_does(folder: Path) -> None:
    with Session.create(folders=[Grant(folder, name="data")], agent="claude") as session:
        seen: list[TaskMessage] = []
        answer = session.ask("plan it", stream=seen.append)
        assert (answer.output, answer.ok, answer.exit_code) == ("planned", True, 0)
        assert [(step.text, step.state) for step in answer.plan] == [
            ("read", "done"), ("think", "active"), ("write", "pending"),
        ]  # fmt: skip
        assert (answer.usage.input_tokens, answer.usage.output_tokens) == (10, 5)
        assert answer.duration >= 0
        assert answer.task.model == "scripted-1"
        assert [message.kind for message in seen[:2]] == ["user", "text"]
        assert str(seen[1]) == "I was told: plan it"
        assert answer.messages == seen
        assert [message.number for message in seen] == list(range(1, len(seen) + 1))
        again = session.ask("where am I")
        assert "/mnt/data" in again.output
        assert [task.prompt for task in session.tasks.list()] == ["plan it", "where am I"]


def test_what_an_agent_changes_is_in_the_summary_and_is_undone(folder: Path) -> None:
    with Session.create(folders=[Grant(folder, name="data")]) as session:
        answer = session.ask("write report.txt", approvals="auto")
        assert answer.output == "wrote report.txt"
        assert (folder / "report.txt").read_text() == "written by the agent\n"
        summary = answer.summary
        assert summary is not None
        assert [(change.path, change.kind) for change in summary.changes] == [
            ("report.txt", "added")
        ]
        assert summary.tools == 1
        assert session.undo(sets=summary.sets).names == 1
        assert not (folder / "report.txt").exists()


def test_a_tool_is_asked_for_and_allowed_or_not(folder: Path) -> None:
    with Session.create(folders=[Grant(folder, name="data")]) as session:
        kinds: list[str] = []

        def decide(request: Request) -> str:
            kinds.append(request.kind)
            return "allow_once" if "good" in request.reason + request.wanted else "reject_once"

        with session.on_request(decide):
            assert session.ask("write good.txt").output == "wrote good.txt"
            refused = session.ask("write bad.txt")
        assert refused.output == "was not allowed"
        assert any(message.failed for message in refused.messages)
        assert kinds == ["tool", "tool"]
        assert [path.name for path in folder.iterdir()] == ["good.txt"]
        assert session.ask("write bad.txt", approvals="deny").output == "was not allowed"


def test_an_agent_works_where_it_is_told_to(folder: Path) -> None:
    (folder / "below").mkdir()
    with Session.create(folders=[Grant(folder, name="data")]) as session:
        cwd = f"/sessions/{session.id}/mnt/data/below"
        answer = session.ask("where am I", agent=Agent("claude", cwd=cwd))
        assert f"in {cwd} " in answer.output
        with pytest.raises(TaskFailed) as caught:
            session.ask("where am I", agent=Agent("claude", cwd=f"{cwd}/missing"))
        assert caught.value.code == "no-folder"


def test_what_came_of_a_task_so_far_is_told_to_whoever_asks(session: Session) -> None:
    with session.tasks.create("wait for ever") as task:
        until(lambda: task.status().messages >= 2)
        assert task.status().summary is None
        summary = task.status(so_far=True).summary
        assert summary is not None
        assert (summary.changes, summary.refused_changes) == ([], [])


def test_attachments_are_there(session: Session, folder: Path) -> None:
    (folder / "notes.txt").write_text("text")
    answer = session.ask("read it", attachments=[folder / "notes.txt"])
    assert answer.task.attachments == ["notes.txt"]
    assert session.files.read_text("uploads/notes.txt") == "text"


def test_failure_is_an_exception_with_a_code(session: Session) -> None:
    with pytest.raises(TaskFailed, match="too hard") as caught:
        session.ask("fail too hard")
    assert caught.value.code == "agent-failed"
    assert caught.value.result.task.state == "failed"
    assert caught.value.result.exit_code == 1
    with pytest.raises(TaskFailed, match="gone fishing") as caught:
        session.ask("leave now")
    assert caught.value.code == "agent-ended"
    assert not session.ask("fail again", check=False).ok
    with pytest.raises(NotFound) as missing:
        session.ask("anything", agent="nobody")
    assert missing.value.code == "no-agent"


def test_a_task_is_steered_paused_and_cancelled(session: Session) -> None:
    task = session.tasks.create("wait for me")
    until(lambda: task.status().messages >= 2)
    assert task.pause().state == "paused"
    assert task.resume().state == "running"
    task.steer("go on")
    assert task.wait().output == "heard: go on"
    with pytest.raises(Conflict):
        task.steer("too late")
    with session.tasks.create("wait for ever") as other:
        next(other)
    assert other.info.state == "cancelled"
    assert session.tasks.get(other.number).info.state == "cancelled"
    with pytest.raises(TaskFailed) as caught:
        other.wait()
    assert caught.value.code


def test_tasks_are_done_in_their_order(session: Session) -> None:
    first, second = session.tasks.create("wait"), session.tasks.create("second")
    assert second.status().state == "waiting"
    first.steer("now")
    assert second.wait().output == "done: second"
    assert first.wait().output == "heard: now"


def test_an_interrupted_call_interrupts_the_task(session: Session) -> None:
    def refuse(message: TaskMessage) -> None:
        if message.kind == "text":
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        session.ask("wait for me", stream=refuse)
    assert [task.state for task in session.tasks.list()] == ["cancelled"]


def test_no_message_is_lost_when_the_daemon_is_killed(site: Site) -> None:
    with Session.create() as session:
        task = session.tasks.create("wait")
        numbers = [next(task).number, next(task).number]
        kill_daemon(session.client.info().pid)

        def say() -> None:
            with Session.connect(session.id) as same:
                same.tasks.get(task.number).steer("on")

        steer = threading.Timer(0.3, say)
        steer.start()
        numbers += [message.number for message in task]
        steer.join()
        assert numbers == list(range(1, len(numbers) + 1))
        assert task.wait().output == "heard: on"
    assert site.state.exists()


def test_a_session_for_an_agent_that_is_not_there_is_not_made(client: Client) -> None:
    before = {info.id for info in client.list_sessions()}
    with pytest.raises(NotFound, match="nobody") as caught:
        Session.create(agent="nobody")
    assert caught.value.code == "no-agent"
    with pytest.raises(CoworkError) as missing:
        Session.create(agent=Agent("claude", program="/nowhere/claude"))
    assert missing.value.hint
    assert {info.id for info in client.list_sessions()} == before


def test_agents_are_listed_and_prepared(client: Client, session: Session) -> None:
    agents = {agent.name: agent for agent in client.agents()}
    assert agents["claude"].program is not None
    assert "codex" in agents
    prepared = session.prepare("claude")
    assert prepared.argv[0].endswith("scripted.py")
    assert prepared.task is not None


def test_a_controller_asks_claude(folder: Path) -> None:
    config = SandboxConfig(vm_name="sdk-asked", folder=folder, keep=False)
    with CoworkController(config) as controller:
        assert controller.ask_claude("write hello.txt").output == "wrote hello.txt"
        assert controller.execute_in_vm("cat hello.txt").output == "written by the agent\n"


@aio
async def test_asyncio_asks_too(folder: Path) -> None:
    async with AsyncSession.create(folders=[folder]) as session:
        seen: list[str] = []

        async def show(message: TaskMessage) -> None:
            await asyncio.sleep(0)
            seen.append(message.kind)

        assert (await session.ask("plan it", stream=show)).output == "planned"
        assert seen[:2] == ["user", "text"]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(session.ask("wait for ever"), 2)
        assert (await session.tasks.list())[-1].state == "cancelled"
        async with await session.tasks.create("wait") as task:
            await anext(task)
        with pytest.raises(TaskFailed):
            await session.ask("fail")
