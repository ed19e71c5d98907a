from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest

from cowork import (
    AsyncSession,
    CommandFailed,
    CommandTimeout,
    Conflict,
    InvalidRequest,
    Session,
    Size,
)

from .aio import aio
from .conftest import kill_daemon, until

if TYPE_CHECKING:
    from .conftest import Site


def test_a_result_has_all_there_is_to_know(session: Session) -> None:
    result = session.run("echo out; sleep 0.2; echo err >&2; exit 3")
    assert (result.exit_code, result.stdout, result.stderr) == (3, "out\n", "err\n")
    assert result.output == "out\nerr\n"
    assert not result.ok
    assert 0.2 <= result.duration < 10
    assert result.signal is None
    killed = session.run("kill -9 $$")
    assert (killed.exit_code, killed.signal) == (137, 9)


def test_words_are_passed_as_they_are_and_a_line_to_the_shell(session: Session) -> None:
    assert session.run(["printf", "%s|", "a b", "$HOME", "*", ""]).stdout == "a b|$HOME|*||"
    assert session.run("echo $((1 + 2))").stdout == "3\n"
    odd = os.fsdecode(b"x\xffy")
    assert session.run(["printf", "%s", odd]).stdout_bytes == b"x\xffy"


def test_the_folder_and_variables_are_its_own(session: Session) -> None:
    assert session.run("pwd", cwd="/tmp").stdout == "/tmp\n"
    assert session.run("pwd").stdout == f"/sessions/{session.id}\n"
    assert session.run("echo $A", env={"A": "b c"}).stdout == "b c\n"
    os.environ["COWORK_SDK_CANARY"] = "secret"
    assert "COWORK_SDK_CANARY" not in session.run("env").stdout


def test_input_is_written_while_output_is_read(session: Session) -> None:
    assert session.run("cat", input="héllo").stdout == "héllo"
    data = os.urandom(1024) * 20 * 1024
    assert session.run(["cat"], input=data).stdout_bytes == data
    assert session.run("head -c 3", input=data).stdout_bytes == data[:3]
    assert session.run("cat").stdout == ""
    assert session.run("cat", input="").exit_code == 0


def test_lines_come_as_they_are_written(session: Session) -> None:
    times: list[tuple[str, float]] = []
    session.run(
        r"for i in 1 2 3; do printf 'li\303'; printf '\251 %s\n' $i; sleep 0.2; done; printf end",
        stream=lambda line: times.append((line, time.monotonic())),
    )
    assert [line for line, _ in times] == ["lié 1", "lié 2", "lié 3", "end"]
    assert times[2][1] - times[0][1] > 0.3


def test_each_stream_has_its_own_callback(session: Session) -> None:
    out: list[str] = []
    err: list[str] = []
    session.run("echo a; echo b >&2; echo c", stdout=out.append, stderr=err.append)
    assert ("".join(out), "".join(err)) == ("a\nc\n", "b\n")


def test_success_can_be_demanded(session: Session) -> None:
    assert session.run("true", check=True).ok
    with pytest.raises(CommandFailed, match="no such thing") as caught:
        session.run("echo no such thing >&2; exit 4", check=True)
    assert caught.value.result.exit_code == 4
    assert caught.value.code == "command-failed"


def test_time_is_limited(session: Session) -> None:
    start = time.monotonic()
    result = session.run("echo begun; sleep 60", timeout=0.3)
    assert time.monotonic() - start < 20
    assert (result.exit_code, result.timed_out, result.stdout) == (124, True, "begun\n")
    with pytest.raises(CommandTimeout) as caught:
        session.run("sleep 60", timeout="100ms", check=True)
    assert caught.value.code == "timeout"


def test_what_cannot_be_started_is_refused(session: Session) -> None:
    for command, cwd, code in [
        (["no-such-program"], None, "not-found"),
        (["/etc/hostname"], None, "not-executable"),
        (["true"], "/nowhere", "bad-cwd"),
        ([], None, "bad-command"),
    ]:
        with pytest.raises(InvalidRequest) as caught:
            session.run(command, cwd=cwd)
        assert caught.value.code == code


def test_much_output_arrives_whole(session: Session) -> None:
    result = session.run("head -c 50000000 /dev/zero | tr '\\0' x; echo end >&2")
    assert len(result.stdout_bytes) == 50_000_000
    assert result.stderr == "end\n"


def test_a_command_is_talked_to(session: Session) -> None:
    with session.exec("while read line; do echo got $line; done; echo over", stdin=True) as process:
        process.write("one\n")
        assert next(process).text == "got one\n"
        process.write("two\n")
        assert next(process).text == "got two\n"
        process.close_stdin()
        assert process.wait(check=True).output == "got one\ngot two\nover\n"
        with pytest.raises(Conflict) as caught:
            process.write("three\n")
        assert caught.value.code == "command-ended"


def test_writing_to_a_command_that_has_ended_is_refused(session: Session) -> None:
    process = session.exec("exit 3", stdin=True)
    until(lambda: process.status().ended is not None)
    with pytest.raises(Conflict) as caught:
        process.write(b"x" * 10_000_000)
    assert caught.value.code == "command-ended"
    assert process.wait().exit_code == 3


def test_a_thread_writes_while_another_reads(session: Session) -> None:
    block = b"x" * 100_000
    with session.exec(["cat"], stdin=True, capture=False) as process:

        def write() -> None:
            for _ in range(100):
                process.write(block)
            process.close_stdin()

        thread = threading.Thread(target=write)
        thread.start()
        total = sum(len(piece.data) for piece in process)
        thread.join()
        assert total == 10_000_000
        assert process.wait().output == ""


def test_signals_reach_it(session: Session) -> None:
    with session.exec(
        "trap 'echo caught; exit 5' USR1; echo ready; while :; do sleep 0.05; done"
    ) as p:
        next(p)
        p.signal(signal.SIGUSR1)
        result = p.wait()
        assert (result.stdout, result.exit_code) == ("ready\ncaught\n", 5)


def test_it_stands_still_and_is_cancelled(session: Session) -> None:
    process = session.exec("while :; do echo tick; sleep 0.02; done")
    next(process)
    assert process.pause().state == "paused"
    assert process.status().state == "paused"
    assert process.resume().state == "running"
    ended = process.cancel(grace=1)
    assert ended.state == "exited"
    result = process.wait()
    assert result.reason is not None
    assert result.reason.code == "cancelled"


def test_it_has_a_terminal_of_the_size_that_is_wanted(session: Session) -> None:
    with session.exec("stty size; read x; stty size", terminal=Size(100, 30)) as process:
        assert next(process).text.strip() == "30 100"
        process.resize(Size(90, 20))
        process.write("\n")
        result = process.wait()
    assert result.stdout.split()[-2:] == ["20", "90"]
    assert result.stderr == ""


def test_leaving_its_context_ends_it_and_detaching_does_not(session: Session) -> None:
    with session.exec("echo $$; sleep 100") as process:
        next(process)
    assert process.status().state == "exited"
    with session.exec("echo begun; sleep 0.5; echo done") as other:
        next(other)
        other.detach()
    assert other.status().state == "running"
    until(lambda: other.status().state != "running")
    assert session.output(other.number) == b"begun\ndone\n"
    assert session.output(other.number, "stderr") == b""


def test_a_command_is_found_again_by_its_number(session: Session) -> None:
    first = session.exec("echo a; read x; echo b $x; exit 3", stdin=True)
    next(first)
    lines: list[str] = []
    again = session.attach(first.number, stream=lines.append)
    assert next(again).text == "a\n"
    again.write("c\n")
    assert again.wait().stdout == "a\nb c\n"
    assert first.wait().exit_code == 3
    ended = session.attach(first.number)
    assert (ended.wait().stdout, ended.wait().exit_code) == ("a\nb c\n", 3)
    assert lines == ["a", "b c"]
    assert [command.number for command in session.commands()] == [first.number]


def test_an_interrupted_call_interrupts_the_command(session: Session) -> None:
    def refuse(line: str) -> None:
        raise ZeroDivisionError(line)

    with pytest.raises(ZeroDivisionError):
        session.run("echo begun; sleep 100", stream=refuse)
    assert session.status().running == []

    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        session.run("sleep 100")
    timer.join()
    assert session.status().running == []
    assert session.run("echo well").stdout == "well\n"


def test_threads_share_a_session(session: Session) -> None:
    found: dict[int, str] = {}

    def work(number: int) -> None:
        for _ in range(5):
            found[number] = session.run(["echo", str(number)]).stdout
            session.status()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: f"{number}\n" for number in range(8)}


def test_a_daemon_that_is_killed_loses_nothing_of_a_running_command(site: Site) -> None:
    with Session.create() as session:
        process = session.exec(
            "for i in 1 2 3 4 5 6; do echo $i; echo e$i >&2; sleep 0.3; done; exit 9"
        )
        next(process)
        kill_daemon(session.client.info().pid)
        result = process.wait()
        assert result.stdout == "1\n2\n3\n4\n5\n6\n"
        assert result.stderr == "e1\ne2\ne3\ne4\ne5\ne6\n"
        assert result.exit_code == 9
        assert session.run("echo again").stdout == "again\n"
    assert site.state.exists()


def test_a_daemon_that_is_killed_loses_nothing_of_a_command_that_ended(site: Site) -> None:
    with Session.create() as session:
        lines: list[str] = []
        process = session.exec("echo a; sleep 0.3; echo b; echo c >&2; exit 4", stream=lines.append)
        next(process)
        kill_daemon(session.client.info().pid)
        time.sleep(0.6)
        again = Session.connect(session.id)
        until(lambda: not again.status().running)
        again.close()
        result = process.wait()
        assert (result.stdout, result.stderr, result.exit_code) == ("a\nb\n", "c\n", 4)
        assert lines == ["a", "b", "c"]
    assert site.state.exists()


@aio
async def test_asyncio_runs_commands() -> None:
    async with AsyncSession.create() as session:
        result = await session.run("echo out; echo err >&2; exit 3")
        assert (result.exit_code, result.stdout, result.stderr) == (3, "out\n", "err\n")
        data = os.urandom(1024) * 20 * 1024
        assert (await session.run(["cat"], input=data)).stdout_bytes == data
        lines: list[str] = []

        async def line(text: str) -> None:
            await asyncio.sleep(0)
            lines.append(text)

        await session.run("echo a; echo b", stream=line)
        assert lines == ["a", "b"]
        many = await asyncio.gather(*(session.run(["echo", str(n)]) for n in range(20)))
        assert [one.stdout for one in many] == [f"{n}\n" for n in range(20)]
        with pytest.raises(CommandFailed):
            await session.run("false", check=True)
        with pytest.raises(InvalidRequest):
            await session.run(["no-such-program"])


@aio
async def test_asyncio_talks_to_a_command() -> None:
    async with AsyncSession.create() as session:
        async with session.exec("while read x; do echo got $x; done", stdin=True) as process:
            await process.write("one\n")
            assert (await anext(process)).text == "got one\n"
            await process.close_stdin()
            assert (await process.wait()).exit_code == 0
        process = await session.exec("sleep 0.1; echo x; exit 2")
        assert [piece.text async for piece in process] == ["x\n"]
        assert (await process.wait()).exit_code == 2
        async with session.exec("sleep 100") as process:
            await process.signal(signal.SIGTERM)
            assert (await process.wait()).signal == signal.SIGTERM
        async with session.exec("sleep 100") as process:
            pass
        assert (await process.status()).state == "exited"


@aio
async def test_asyncio_cancels_the_command_of_a_cancelled_call() -> None:
    async with AsyncSession.create() as session:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(session.run("sleep 100"), 0.5)
        assert (await session.status()).running == []


@aio
async def test_asyncio_attaches_again_after_a_daemon_was_killed(site: Site) -> None:
    async with AsyncSession.create() as session:
        process = await session.exec("for i in 1 2 3 4; do echo $i; sleep 0.3; done; exit 9")
        await anext(process)
        pid = (await session.client.info()).pid
        kill_daemon(pid)
        result = await process.wait()
        assert (result.stdout, result.exit_code) == ("1\n2\n3\n4\n", 9)
    assert site.state.exists()
