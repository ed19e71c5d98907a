"""Whether what is written here agrees with what the daemon says of itself."""

from __future__ import annotations

import dataclasses
import inspect
import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

import cowork
from cowork import (
    Client,
    Grant,
    Limits,
    Network,
    ProtocolError,
    Quota,
    Rule,
    Session,
    Task,
    Writes,
    _json,
    types,
)

if TYPE_CHECKING:
    from pathlib import Path

MADE = {
    types.Grant: "NewGrant",
    types.Rule: "NetworkRuleInput",
    types.Network: "WantedNetwork",
    types.Limits: "WantedLimits",
    types.Writes: "WantedWritesInput",
    types.Size: "Size",
    types.Agent: "AgentOptions",
}
"""What a caller makes, and what the daemon calls it."""


@pytest.mark.parametrize("one", MADE, ids=lambda one: one.__name__)
def test_what_a_caller_makes_has_the_fields_that_the_daemon_reads(client: Client, one: Any) -> None:
    schemas = client.openapi()["components"]["schemas"]
    fields = {field.name for field in dataclasses.fields(one)}
    if one is types.Grant:
        fields = fields - {"mode"} | {"access"}
    if one is types.Agent:
        fields = fields - {"name", "installed"} | {"from", "path", "step"}
    assert fields == set(schemas[MADE[one]]["properties"])


def test_answers_may_grow_and_may_not_shrink() -> None:
    entry = {"name": "a", "kind": "file", "size": 1, "modified": "2026-01-02T03:04:05.678Z", "x": 1}
    found = _json.decode(types.FileEntry, entry)
    assert (found.name, found.modified.isoformat()) == ("a", "2026-01-02T03:04:05.678000+00:00")
    del entry["size"]
    with pytest.raises(ProtocolError, match="not a FileEntry"):
        _json.decode(types.FileEntry, entry)
    with pytest.raises(ProtocolError):
        _json.decode(types.FileEntry, [])
    entry = {**entry, "size": 1, "kind": "a kind that is new"}
    assert str(_json.decode(types.FileEntry, entry).kind) == "a kind that is new"


def test_names_that_are_not_text_come_back() -> None:
    name = os.fsdecode(b"a\xff")
    assert _json.raw(name) == {"base64": "Yf8="}
    entry = {"name": _json.raw(name), "kind": "file", "size": 1, "modified": "2026-01-02T03:04:05Z"}
    assert _json.decode(types.FileEntry, entry).name == name


def test_what_a_caller_makes_is_what_the_daemon_reads(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.chdir(folder)
    assert Grant("~/x", mode="ro").body() == {"path": f"{folder}/x", "access": "ro"}
    assert Grant("y", name="z", force=True).body() == {
        "path": f"{folder}/y", "access": "rw", "name": "z", "force": True,
    }  # fmt: skip
    limited = Grant("y", direct=("build",), writes=Writes(quota=Quota(files=3)))
    assert limited.body() == {
        "path": f"{folder}/y", "access": "rw", "direct": ["build"],
        "writes": {"quota": {"files": 3}, "block": [], "unblock": []},
    }  # fmt: skip
    assert Rule("a.example", methods=["GET"]).body() == {
        "host": "a.example", "action": "allow", "methods": ["GET"], "tls": "auto",
    }  # fmt: skip
    assert Network(rules=["b.example"], presets=["pypi"]).body()["presets"] == ["pypi"]
    assert Limits(memory="1G", cpus=1.5, wall=90).body() == {
        "memory": "1G", "cpus": "1.5", "wall": "90000ms",
    }  # fmt: skip
    assert [types.span(s) for s in (0.25, timedelta(minutes=1), "8h", None)] == [
        "250ms", "60000ms", "8h", None,
    ]  # fmt: skip


COVERED = {
    "Client": "info doctor openapi listPresets:presets listRules:rules removeRule:remove_rule"
    " history listSessions:list_sessions showSession:connect events shutdown listAgents:agents",
    "Secrets": "listSecrets:list setSecret:set removeSecret:remove",
    "Audit": "listRecords:list exportAudit:export verifyAudit:verify",
    "Requests": "listRequests:list showRequest:get decide ask showAsked:asked",
    "Session": "createSession:create removeSession:end changeSession:set"
    " startCommand:exec listCommands:commands attach output"
    " listGrants:grants showGrant:granted addGrant:grant revokeGrant:revoke changeGrant:regrant"
    " translatePath:path"
    " pauseSession:pause resumeSession:resume cancelSession:cancel startSession:start"
    " stopSession:stop findProcesses:processes usage usageHistory:usage_history boundary"
    " applyChanges:apply discardChanges:discard listChanges:changes showDifferences:diff undo redo"
    " prepareAgent:prepare",
    "Process": "showCommand:status showCommandUsage:usage cancelCommand:cancel"
    " pauseCommand:pause resumeCommand:resume"
    " resizeTerminal:resize signalCommand:signal writeInput:write",
    "Files": "listRoot:list readFile:read writeFile:write removeFile:remove watchFiles:watch",
    "Network": "showNetwork:show changeNetwork:change explainNetwork:explain networkHar:har"
    " publishPort:publish unpublishPort:unpublish traffic",
    "Protected": "listProtected:list protect:add unprotect:remove",
    "Tasks": "listTasks:list createTask:create showTask:get",
    "Task": "listMessages:messages steerTask:steer pauseTask:pause resumeTask:resume"
    " cancelTask:cancel",
}
"""Which method of which class is for which operation of the API."""


def test_every_operation_has_a_method(client: Client) -> None:
    with Session.create() as session:
        process = session.exec("true")
        things = [client, client.secrets, session.audit, session.requests, session, process]
        things += [session.files, session.network, session.protected, session.tasks, Task]
        found = set()
        for thing, (name, operations) in zip(
            sorted(things, key=name_of), sorted(COVERED.items()), strict=True
        ):
            assert name_of(thing) == name
            for pair in operations.split():
                operation, _, method = pair.partition(":")
                assert callable(getattr(thing, method or operation)), operation
                found.add(operation)
        process.wait()
    paths = client.openapi()["paths"]
    assert found == {one["operationId"] for path in paths.values() for one in path.values()}


def name_of(thing: object) -> str:
    return (thing if isinstance(thing, type) else type(thing)).__name__


def public(one: type) -> dict[str, list[str]]:
    found = inspect.getmembers(one, inspect.isfunction) + inspect.getmembers(one, inspect.ismethod)
    renamed = {"aclose": "close"}
    return {
        renamed.get(name, name): list(inspect.signature(member).parameters)
        for name, member in found
        if not name.startswith("_")
    }


@pytest.mark.parametrize(
    "name", ["Client", "Session", "Process", "Events", "Request", "Subscription", "Task"]
)
def test_twins_offer_the_same(name: str) -> None:
    assert public(getattr(cowork, name)) == public(getattr(cowork, f"Async{name}"))
