"""Whether what is written here agrees with what the daemon says of itself."""

from __future__ import annotations

import dataclasses
import inspect
import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

import cowork
from cowork import Client, Grant, Limits, Network, ProtocolError, Rule, _json, types

if TYPE_CHECKING:
    from pathlib import Path

NAMES = {
    "SessionInfo": "Session",
    "GrantInfo": "Grant",
    "RequestInfo": "Request",
    "ProcessInfo": "Process",
    "NetworkInfo": "Network",
    "RuleInfo": "NetworkRule",
    "Grant": "NewGrant",
    "Rule": "NetworkRuleInput",
    "Network": "WantedNetwork",
    "Limits": "WantedLimits",
}
OWN = {"Result", "Output"}
CHANGES = {
    "Change", "ChangeConflict", "ChangeMark", "ChangeSet", "ChangedFolder", "Changes",
    "Difference",
    "Discarded", "Restored", "RestoredName", "Retention",
}  # fmt: skip


def classes() -> list[Any]:
    found = inspect.getmembers(types, dataclasses.is_dataclass)
    return [one for name, one in found if name not in OWN and one.__module__ == "cowork.types"]


def test_every_class_has_the_fields_that_the_daemon_describes(client: Client) -> None:
    schemas = client.openapi()["components"]["schemas"]
    for one in classes():
        name = NAMES.get(one.__name__, one.__name__)
        if name not in schemas:
            assert name in CHANGES, f"the daemon knows no {name}"
            continue
        known = set(schemas[name]["properties"])
        fields = {field.name.rstrip("_"): field for field in dataclasses.fields(one)}
        if one in {types.Grant}:
            fields["access"] = fields.pop("mode")
            known.discard("writes")
        assert known <= set(fields), f"{one.__name__} lacks {known - set(fields)}"
        for extra in set(fields) - known:
            field = fields[extra]
            has_default = (
                field.default is not dataclasses.MISSING
                or field.default_factory is not dataclasses.MISSING
            )
            assert has_default, f"{one.__name__}.{extra} is not known to the daemon"


def test_answers_may_grow_and_may_not_shrink() -> None:
    entry = {"name": "a", "kind": "file", "size": 1, "modified": "2026-01-02T03:04:05.678Z", "x": 1}
    found = _json.decode(types.FileEntry, entry)
    assert (found.name, found.modified.isoformat()) == ("a", "2026-01-02T03:04:05.678000+00:00")
    del entry["size"]
    with pytest.raises(ProtocolError, match="not a FileEntry"):
        _json.decode(types.FileEntry, entry)
    with pytest.raises(ProtocolError):
        _json.decode(types.FileEntry, [])


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


def public(one: type) -> dict[str, list[str]]:
    found = inspect.getmembers(one, inspect.isfunction) + inspect.getmembers(one, inspect.ismethod)
    renamed = {"aclose": "close"}
    return {
        renamed.get(name, name): list(inspect.signature(member).parameters)
        for name, member in found
        if not name.startswith("_")
    }


@pytest.mark.parametrize(
    "name", ["Client", "Session", "Process", "Events", "Request", "Subscription"]
)
def test_twins_offer_the_same(name: str) -> None:
    assert public(getattr(cowork, name)) == public(getattr(cowork, f"Async{name}"))
