"""Drives the tools of `cowork mcp` with the official client of MCP, and checks what they answer.

    client.py SCENARIO TRANSPORT MODE COWORK FOLDER

TRANSPORT is `stdio` or `http`; MODE is `legacy` (the initialize handshake) or a revision of the
protocol; COWORK is the program; FOLDER belongs to the caller, is granted to sessions, and is
filled and looked at here. Any failed check ends the program with a traceback.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import jsonschema
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

SCENARIO, TRANSPORT, MODE, COWORK, FOLDER = sys.argv[1:6]
FOLDER = Path(FOLDER)
NAME = FOLDER.name

TOOLS = {
    "create_session": (False, False, False, False),
    "list_sessions": (True, False, True, False),
    "end_session": (False, True, True, False),
    "run_command": (False, True, False, True),
    "read_output": (True, False, True, False),
    "read_file": (True, False, True, False),
    "write_file": (False, True, True, False),
    "edit_file": (False, True, False, False),
    "list_files": (True, False, True, False),
    "search_files": (True, False, True, False),
    "request_cowork_directory": (False, False, False, True),
    "present_files": (True, False, True, False),
    "list_changes": (True, False, True, False),
    "show_diff": (True, False, True, False),
    "undo_changes": (False, True, False, False),
}


def cowork(*words):
    """Runs the command line, as the user would."""
    done = subprocess.run([COWORK, *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def server(*options):
    """The server over standard input and output."""
    args = ["mcp", *options]
    return StdioServerParameters(command=COWORK, args=args, env=dict(os.environ))


@asynccontextmanager
async def connected(*options):
    """A client that is connected by the transport that is tried."""
    if TRANSPORT == "stdio":
        async with Client(server(*options), mode=MODE) as client:
            yield client
        return
    cowork("ls")
    path = os.path.join(os.environ["COWORK_RUNTIME_DIR"], "api.sock")
    transport = httpx2.AsyncHTTPTransport(uds=path)
    async with httpx2.AsyncClient(transport=transport, timeout=120) as http:
        streams = streamable_http_client("http://localhost/mcp", http_client=http)
        async with Client(streams, mode=MODE) as client:
            yield client


async def good(client, tool, **arguments):
    """The structured answer of a call that must succeed."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, (tool, arguments, result.content)
    assert result.content and result.content[0].text, (tool, result)
    return result.structured_content


async def refused(client, tool, **arguments):
    """The code of a call that must be refused."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, (tool, arguments, result.structured_content)
    error = result.meta["cowork/error"]
    text = result.content[0].text
    assert text.startswith(error["code"] + ": "), text
    assert error["sentence"], error
    return error["code"]


def pending(session):
    """The number of the request that waits in a session."""
    for _ in range(600):
        found = json.loads(cowork("requests", "--json"))
        found = [one for one in found if one["session"] == session and one["state"] == "pending"]
        if found:
            return found[-1]
        time.sleep(0.05)
    raise AssertionError("nothing was asked")


async def with_folder(client):
    """A session that has the folder: granted from the start, or asked for."""
    made = await good(client, "create_session")
    session = made["session"]
    if not made["folders"]:
        arguments = {"session": session, "wanted": "the test's folder", "reason": "to test",
                     "access": "rw", "path": str(FOLDER)}
        asking = asyncio.create_task(good(client, "request_cowork_directory", **arguments))
        request = await asyncio.to_thread(pending, session)
        assert request["wanted"] == f"{FOLDER}: the test's folder", request
        await asyncio.to_thread(cowork, "decide", str(request["id"]), "allow")
        answer = await asking
        assert answer["state"] == "allowed" and answer["access"] == "rw", answer
        assert answer["path"] == f"/sessions/{session}/mnt/{NAME}", answer
    listed = await good(client, "list_sessions")
    [own] = [one for one in listed["sessions"] if one["session"] == session]
    assert [(one["name"], one["access"]) for one in own["folders"]] == [(NAME, "rw")], own
    assert str(FOLDER) not in json.dumps(listed), "paths of the host are not told"
    return session


async def tour():
    """Every tool once, and what it says of itself."""
    (FOLDER / "notes.md").write_text("# Notes\n\nWrite more.\n")
    (FOLDER / "run.sh").write_text("#!/bin/sh\necho one\n")
    (FOLDER / "run.sh").chmod(0o755)
    async with connected("--grant", str(FOLDER)) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == set(TOOLS), set(tools) ^ set(TOOLS)
        for name, (reads, destroys, idempotent, opens) in TOOLS.items():
            tool = tools[name]
            jsonschema.Draft202012Validator.check_schema(tool.input_schema)
            jsonschema.Draft202012Validator.check_schema(tool.output_schema)
            assert tool.input_schema["additionalProperties"] is False, name
            hints = tool.annotations
            said = (hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint,
                    hints.open_world_hint)
            assert said == (reads, destroys, idempotent, opens), (name, said)
            assert len(tool.description) > 60 and tool.title, name
        session = await with_folder(client)
        # The only session of a connection goes without saying, where there is a connection.
        stateless = TRANSPORT == "http" and MODE != "legacy"
        if stateless:
            assert await refused(client, "list_files") == "which-session"
        else:
            assert (await good(client, "list_files"))["path"] == f"/sessions/{session}/mnt"
        here = {"session": session}

        ran = await good(client, "run_command", **here, shell="echo out; echo err >&2; exit 3")
        assert (ran["exit_code"], ran["stdout"], ran["stderr"]) == (3, "out\n", "err\n"), ran
        ran = await good(client, "run_command", **here, argv=["cat"], stdin="given\n",
                         cwd=f"mnt/{NAME}", env={"A": "b"})
        assert ran["stdout"] == "given\n", ran
        ran = await good(client, "run_command", **here, shell="sleep 60", timeout_seconds=1)
        assert ran["timed_out"], ran
        ran = await good(client, "run_command", **here, shell="seq 1 100000")
        assert ran["truncated"] and ran["stdout_bytes"] == 588895, ran
        assert len(ran["stdout"]) < 40_000 and ran["stdout"].endswith("100000\n")
        part = await good(client, "read_output", **here, command=ran["command"], **{"from": 588888})
        assert part["text"] == "100000\n" and part["next"] is None, part
        part = await good(client, "read_output", **here, command=ran["command"])
        assert part["next"] == 65536 and part["text"].startswith("1\n2\n"), part["next"]
        ran = await good(client, "run_command", **here, shell=r"printf '\033[2J\007'")
        assert ran["stdout"] == r"\u{1b}[2J\u{7}", ran

        read = await good(client, "read_file", **here, path=f"mnt/{NAME}/notes.md")
        assert read["text"] == "# Notes\n\nWrite more.\n" and read["exact"], read
        read = await good(client, "read_file", **here, path=f"/sessions/{session}/mnt/{NAME}/notes.md",
                          line=3, lines=1)
        assert (read["text"], read["next_line"]) == ("Write more.\n", None), read

        wrote = await good(client, "write_file", **here, path=f"mnt/{NAME}/new/deep/file.txt",
                           text="fresh\n")
        assert (FOLDER / "new/deep/file.txt").read_text() == "fresh\n"
        assert wrote["bytes"] == 6, wrote
        await good(client, "edit_file", **here, path=f"mnt/{NAME}/notes.md",
                   old_text="more", new_text="less")
        assert (FOLDER / "notes.md").read_text() == "# Notes\n\nWrite less.\n"
        await good(client, "edit_file", **here, path=f"mnt/{NAME}/run.sh",
                   old_text="one", new_text="two")
        assert (FOLDER / "run.sh").stat().st_mode & 0o777 == 0o755, "the mode stays"
        owner = (FOLDER / "run.sh").stat()
        assert (owner.st_uid, owner.st_gid) == (os.getuid(), os.getgid()), owner
        assert not list(FOLDER.rglob(".cowork-*")), "nothing is left beside"

        listed = await good(client, "list_files", **here, path=f"mnt/{NAME}")
        kinds = {one["name"]: one["kind"] for one in listed["entries"]}
        assert kinds == {"new": "folder", "notes.md": "file", "run.sh": "file"}, kinds
        found = await good(client, "search_files", **here, query="Write less")
        [match] = found["matches"]
        assert match == {"path": f"/sessions/{session}/mnt/{NAME}/notes.md", "line": 3,
                         "text": "Write less."}, match
        found = await good(client, "search_files", **here, query="^w.*[es]{3}", regex=True,
                           ignore_case=True, path=f"mnt/{NAME}", glob="*.md")
        assert len(found["matches"]) == 1, found
        found = await good(client, "search_files", **here, query="no such words")
        assert found["matches"] == [] and not found["more"], found

        changes = await good(client, "list_changes", **here)
        kinds = {Path(one["path"]).name: one["change"] for one in changes["changes"]}
        assert kinds["notes.md"] == "modified" and kinds["file.txt"] == "added", kinds
        diff = await good(client, "show_diff", **here, path=f"mnt/{NAME}/notes.md")
        assert "-Write more." in diff["diff"] and "+Write less." in diff["diff"], diff
        tried = await good(client, "undo_changes", **here, all=True, dry_run=True)
        assert tried["names"] >= 3 and "set" not in tried, tried
        undone = await good(client, "undo_changes", **here, all=True)
        assert undone["conflicts"] == [] and undone["lost"] == [], undone
        assert (FOLDER / "notes.md").read_text() == "# Notes\n\nWrite more.\n"
        assert (FOLDER / "run.sh").read_text() == "#!/bin/sh\necho one\n"
        assert not (FOLDER / "new").exists()

        await good(client, "write_file", **here, path="mnt/outputs/table.csv", text="a,b\n")
        shown = await good(client, "present_files", **here)
        [file] = shown["files"]
        assert (file["bytes"], file["kind"]) == (4, "text/csv"), file
        assert Path(file["host_path"]).read_text() == "a,b\n", file
        shown = await good(client, "present_files", **here, paths=["mnt/outputs/table.csv"])
        assert shown["files"] == [file], shown
        ended = await good(client, "end_session", **here)
        assert Path(ended["outputs_on_host"], "table.csv").read_text() == "a,b\n", ended
        assert await refused(client, "run_command", **here, shell="true") == "no-session"


async def refusals():
    """What is refused, and how that is said."""
    secret = Path(os.environ["HOME"]) / ".ssh/id_secret"
    (FOLDER / "plain.txt").write_text("twice twice\n")
    (FOLDER / "binary").write_bytes(b"\xff\xfe\x00")
    (FOLDER / "hooks").mkdir()
    (FOLDER / "out").symlink_to(secret)
    (FOLDER / "up").symlink_to("..")
    os.mkfifo(FOLDER / "pipe")
    with open(FOLDER / "huge", "wb") as file:
        file.truncate(20 * 1024 * 1024)
    async with connected("--grant", str(FOLDER)) as client:
        session = await with_folder(client)
        here = {"session": session}
        at = f"mnt/{NAME}"
        reads = [
            (f"{at}/../../../etc/passwd", "bad-path"),
            (f"/sessions/{session}/mnt/../../../etc/passwd", "bad-path"),
            ("/etc/passwd", "outside"),
            (str(secret), "outside"),
            ("/proc/self/environ", "outside"),
            (f"{at}/out", "link"),
            (f"{at}/up/x", "link"),
            (f"{at}/pipe", "special-file"),
            (f"{at}/huge", "too-large"),
            (f"{at}/binary", "not-text"),
            (f"{at}/missing", "no-file"),
            (f"{at}/plain.txt/below", "not-folder"),
            (f"{at}/hooks", "is-folder"),
            (at, "is-folder"),
            ("mnt/nobody/x", "no-root"),
        ]
        for path, code in reads:
            began = time.monotonic()
            assert await refused(client, "read_file", **here, path=path) == code, path
            assert time.monotonic() - began < 30, path
        writes = [
            (f"{at}/../x", "bad-path"),
            ("/etc/passwd", "outside"),
            (f"{at}/out", "link"),
            (f"{at}/up/x", "link"),
            (f"{at}/pipe", "special-file"),
            (f"{at}/hooks", "is-folder"),
            (f"{at}/plain.txt/below", "not-folder"),
            ("mnt/uploads/x", "read-only"),
            (f"{at}/{'n' * 300}", "bad-path"),
            (f"{at}/setup.exe", "refused"),
        ]
        for path, code in writes:
            assert await refused(client, "write_file", **here, path=path, text="x") == code, path
        code = await refused(client, "write_file", **here, path=f"{at}/plain.txt", text="x",
                             create_only=True)
        assert code == "exists"
        edit = {**here, "path": f"{at}/plain.txt", "new_text": "once"}
        assert await refused(client, "edit_file", **edit, old_text="twice") == "not-unique"
        assert await refused(client, "edit_file", **edit, old_text="thrice") == "not-found"
        assert await refused(client, "edit_file", **edit, old_text="") == "bad-arguments"
        edited = await good(client, "edit_file", **edit, old_text="twice", replace_all=True)
        assert edited["replaced"] == 2, edited
        code = await refused(client, "search_files", **here, query="(", regex=True)
        assert code == "bad-regex", code
        assert await refused(client, "present_files", **here, paths=[at]) == "not-output"
        assert await refused(client, "list_files", **here, path=f"{at}/up/..x") == "link"
        assert await refused(client, "list_files", **here, path=f"{at}/up") == "not-folder"
        # A name that the user has protected, and one that the user is asked about.
        cowork("protect", "add", session, "/hooks/**", "--deny", "--reason", "they run by themselves")
        result = await client.call_tool("write_file", {**here, "path": f"{at}/hooks/a", "text": "x"})
        assert result.is_error and result.meta["cowork/error"]["code"] == "refused", result
        assert "they run by themselves" in result.content[0].text, result.content
        cowork("protect", "add", session, "asked.txt", "--ask")
        for answer, wrong in (("reject", True), ("allow", False)):
            arguments = {**here, "path": f"{at}/asked.txt", "text": answer}
            writing = asyncio.create_task(client.call_tool("write_file", arguments))
            request = await asyncio.to_thread(pending, session)
            await asyncio.to_thread(cowork, "decide", str(request["id"]), answer)
            assert (await writing).is_error is wrong, answer
        assert (FOLDER / "asked.txt").read_text() == "allow"
        assert not list(FOLDER.rglob(".cowork-*")), "nothing is left beside"
        # Read-only, from one moment to the next.
        cowork("grant", session, f"{FOLDER}:ro")
        code = await refused(client, "write_file", **here, path=f"{at}/plain.txt", text="x")
        assert code == "read-only", code
        # A session of the user's is not there, until the user shares it.
        own = cowork("new").strip()
        assert await refused(client, "run_command", session=own, shell="true") == "no-session"
        listed = await good(client, "list_sessions")
        assert own not in [one["session"] for one in listed["sessions"]], listed
        cowork("set", own, "--label", "mcp=shared")
        await good(client, "run_command", session=own, shell="true")
        assert await refused(client, "end_session", session=own) == "not-ours"
        cowork("rm", own)
        await good(client, "end_session", **here)


async def staged():
    """A staged folder is read as the session sees it, and stays as it is."""
    (FOLDER / "a.txt").write_text("old\n")
    async with connected("--grant", f"{FOLDER}:staged") as client:
        made = await good(client, "create_session")
        assert made["folders"][0]["access"] == "staged", made
        await good(client, "write_file", path=f"mnt/{NAME}/a.txt", text="new\n")
        assert (await good(client, "read_file", path=f"mnt/{NAME}/a.txt"))["text"] == "new\n"
        await good(client, "edit_file", path=f"mnt/{NAME}/a.txt", old_text="new", new_text="newer")
        assert (FOLDER / "a.txt").read_text() == "old\n"
        await good(client, "write_file", path=f"mnt/{NAME}/b c.txt", text="b")
        listed = await good(client, "list_files", path=f"mnt/{NAME}")
        assert [one["name"] for one in listed["entries"]] == ["a.txt", "b c.txt"], listed
        for path, code in ((f"mnt/{NAME}/none", "no-file"), (f"mnt/{NAME}", "is-folder")):
            assert await refused(client, "read_file", path=path) == code
        await good(client, "run_command", shell=f"ln -s /etc/passwd mnt/{NAME}/l")
        assert await refused(client, "read_file", path=f"mnt/{NAME}/l") == "link"
        await good(client, "end_session")


async def asking():
    """The user says no, says another folder, says nothing, and says it later."""
    async with connected() as client:
        session = (await good(client, "create_session"))["session"]
        assert (await good(client, "list_files", session=session))["entries"][0]["name"] == "outputs"
        ask = {"session": session, "wanted": "a folder", "reason": "because", "access": "rw"}

        def answer(*words):
            request = pending(session)
            cowork("decide", str(request["id"]), *words)

        said = asyncio.create_task(asyncio.to_thread(answer, "reject", "--note", "not now"))
        told = []

        async def hear(progress, total, message):
            told.append((progress, message))

        result = await client.call_tool("request_cowork_directory", ask, progress_callback=hear)
        assert result.structured_content["state"] == "rejected", result
        assert result.structured_content["note"] == "not now", result
        assert "path" not in result.structured_content, result
        assert told and "waiting for the user's answer" in told[0][1], told
        await said
        # Nothing is learned about places that are not given.
        for path in ("/root/.ssh", "/no/such/place"):
            waiting = await good(client, "request_cowork_directory", **ask, path=path, wait_seconds=0)
            assert set(waiting) == {"request", "state"} and waiting["state"] == "pending", waiting
            cowork("decide", str(waiting["request"]), "reject")
        for path in ("relative", "/a/../b"):
            code = await refused(client, "request_cowork_directory", **ask, path=path)
            assert code == "bad-path", code
        # The user names the folder, and what may be done with it.
        waiting = await good(client, "request_cowork_directory", **ask, wait_seconds=0)
        number = waiting["request"]
        cowork("decide", str(number), "allow", "--path", str(FOLDER), "--ro")
        done = await good(client, "request_cowork_directory", session=session, request=number)
        assert (done["state"], done["access"]) == ("allowed", "ro"), done
        assert done["path"] == f"/sessions/{session}/mnt/{NAME}", done
        code = await refused(client, "write_file", session=session, path=f"mnt/{NAME}/x", text="x")
        assert code == "read-only", code
        other = (await good(client, "create_session"))["session"]
        code = await refused(client, "request_cowork_directory", session=other, request=number)
        assert code == "no-request", code
        for session in (session, other):
            await good(client, "end_session", session=session)


async def progress():
    """A command tells how it goes, and ends when nobody waits for it."""
    async with connected() as client:
        session = (await good(client, "create_session"))["session"]
        told = []

        async def hear(progress, total, message):
            told.append((progress, message))

        line = "for i in 1 2 3 4; do echo step $i; sleep 0.5; done"
        result = await client.call_tool("run_command", {"session": session, "shell": line},
                                        progress_callback=hear)
        assert result.structured_content["exit_code"] == 0, result
        assert any(message and message.startswith("step") for _, message in told), told
        amounts = [amount for amount, _ in told]
        assert amounts == sorted(set(amounts)), told
        # A call that is given up takes its command along.
        marker = f"sleep 7{os.getpid() % 1000:03}"
        call = asyncio.create_task(
            client.call_tool("run_command", {"session": session, "shell": marker}))
        await until(lambda: running(session), "the command runs")
        call.cancel()
        try:
            await call
        except (asyncio.CancelledError, Exception):
            pass
        await until(lambda: not running(session), "the command has ended")
        await good(client, "end_session", session=session)


def running(session):
    shown = json.loads(cowork("status", session, "--json"))
    return shown["running"]


async def until(so, what):
    for _ in range(300):
        if await asyncio.to_thread(so):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"waited in vain until {what}")


async def bad():
    """Arguments that make no sense are said to, and nothing happens."""
    async with connected() as client:
        session = (await good(client, "create_session"))["session"]
        table = [
            ("run_command", {}),
            ("run_command", {"shell": "true", "argv": ["true"]}),
            ("run_command", {"argv": []}),
            ("run_command", {"argv": "true"}),
            ("run_command", {"shell": 7}),
            ("run_command", {"shell": "true", "timeout_seconds": 0}),
            ("run_command", {"shell": "true", "timeout_seconds": -1}),
            ("run_command", {"shell": "true", "nonsense": 1}),
            ("read_file", {}),
            ("read_file", {"path": ["a"]}),
            ("read_file", {"path": "mnt/outputs/a", "line": 0}),
            ("write_file", {"path": "mnt/outputs/a"}),
            ("write_file", {"path": "mnt/outputs/a", "text": None}),
            ("search_files", {"query": ""}),
            ("search_files", {"query": "a", "limit": 100000}),
            ("request_cowork_directory", {"wanted": "a"}),
            ("undo_changes", {"sets": ["a"]}),
            ("list_sessions", {"all": True}),
        ]
        for tool, arguments in table:
            with_session = arguments if tool == "list_sessions" else {**arguments, "session": session}
            code = await refused(client, tool, **with_session)
            assert code == "bad-arguments", (tool, arguments, code)
        for name in ("no-such-session", "", "../info", "a\u0000b", "x" * 5000):
            code = await refused(client, "run_command", session=name, shell="true")
            assert code == "no-session", (name, code)
        code = await refused(client, "create_session", session="Not A Name")
        assert code == "bad-arguments", code
        code = await refused(client, "run_command", session=session, argv=["/no/such/program"])
        assert code == "not-found", code
        code = await refused(client, "run_command", session=session, shell="true", cwd="/no/such")
        assert code == "bad-cwd", code
        code = await refused(client, "read_output", session=session, command=4000)
        assert code == "no-command", code
        try:
            await client.call_tool("no_such_tool", {})
        except Exception as error:
            assert "no_such_tool" in str(error), error
        else:
            raise AssertionError("there is a tool of no name")
        await good(client, "end_session", session=session)


async def address():
    """On TCP the tools are behind the token like everything else, and closed to web pages."""
    token = "a token of more than sixteen characters"
    file = FOLDER / "token"
    file.write_text(token)
    file.chmod(0o600)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    places = {name: str(FOLDER / name[7:10]) for name in ("COWORK_RUNTIME_DIR", "COWORK_STATE_DIR")}
    os.mkdir(places["COWORK_RUNTIME_DIR"], 0o700)
    words = ["--listen", f"127.0.0.1:{port}", "--token-file", str(file)]
    program = os.path.join(os.path.dirname(COWORK), "coworkd")
    daemon = subprocess.Popen([program, *words], env={**os.environ, **places})
    try:
        url = f"http://127.0.0.1:{port}/mcp"
        hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"}}}
        accept = {"accept": "application/json, text/event-stream"}
        bearer = {"authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(headers=accept, timeout=60) as http:
            async def status(**headers):
                return (await http.post(url, json=hello, headers=headers)).status_code

            for _ in range(300):
                try:
                    await status()
                    break
                except httpx2.TransportError:
                    await asyncio.sleep(0.1)
            assert await status() == 401
            assert await status(authorization="Bearer nonsense") == 401
            assert await status(**bearer) == 200
            assert await status(**bearer, origin="http://page.example") == 403
            large = await http.post(url, content=b" " * (17 * 1024 * 1024), headers={
                **bearer, "content-type": "application/json"})
            assert large.status_code == 413, large
        async with httpx2.AsyncClient(headers=bearer, timeout=60) as http:
            streams = streamable_http_client(url, http_client=http)
            async with Client(streams, mode=MODE) as client:
                assert (await good(client, "list_sessions"))["sessions"] == []
    finally:
        daemon.terminate()
        daemon.wait(timeout=60)


async def left():
    """Waits to be killed, with a command running."""
    async with connected("--grant", str(FOLDER)) as client:
        session = (await good(client, "create_session"))["session"]
        call = asyncio.create_task(
            client.call_tool("run_command", {"session": session, "shell": "sleep 1000"}))
        await until(lambda: running(session), "the command runs")
        print(session, flush=True)
        await call


def raw():
    """Older revisions, spoken by hand: one line each way."""
    for version in ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"):
        process = subprocess.Popen([COWORK, "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   text=True)

        def send(message):
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            process.stdin.flush()

        def answer(number):
            while True:
                message = json.loads(process.stdout.readline())
                if message.get("id") == number:
                    return message

        send({"id": 1, "method": "initialize", "params": {
            "protocolVersion": version, "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"}}})
        said = answer(1)["result"]
        assert said["protocolVersion"] == version, said
        assert said["serverInfo"]["name"] == "cowork" and "create_session" in said["instructions"]
        send({"method": "notifications/initialized"})
        send({"id": 2, "method": "tools/list"})
        assert {tool["name"] for tool in answer(2)["result"]["tools"]} == set(TOOLS)
        send({"id": 3, "method": "tools/call",
              "params": {"name": "list_sessions", "arguments": {}}})
        result = answer(3)["result"]
        assert json.loads(result["content"][0]["text"]) == result["structuredContent"], result
        assert "resultType" not in result, result
        # What is no request does no harm.
        process.stdin.write("this is not JSON\n")
        process.stdin.flush()
        send({"id": 4, "method": "ping"})
        assert answer(4)["result"] == {}
        process.stdin.close()
        assert process.wait(timeout=30) == 0


SCENARIOS = {"tour": tour, "refusals": refusals, "staged": staged, "asking": asking,
             "progress": progress, "bad": bad, "left": left,
             "address": address}

if SCENARIO == "raw":
    raw()
else:
    asyncio.run(SCENARIOS[SCENARIO]())
