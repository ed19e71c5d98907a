"""Makes the classes of the daemon's answers from its description, ``docs/openapi.json``.

Each schema that an answer leads to becomes a dataclass in the module of the first part of the API
that answers with it; each list of words becomes a ``Literal``. Most of what a caller makes is
written by hand, in ``wanted.py``, and so is ``results.py``. With ``--check`` nothing is written,
and a difference is an error.
"""

from __future__ import annotations

import ast
import json
import keyword
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

from formatted import settle

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT.parent.parent / "docs" / "openapi.json"
TYPES = ROOT / "src" / "cowork" / "types"
NOTE = "# Made by tools/answers.py from docs/openapi.json; change that."

PARTS = [
    ("records", r"/audit|/events", "The record, and events."),
    ("folders", r"/grants|/path$", "Granted folders."),
    ("requests", r"/requests", "What sessions ask for."),
    ("files", r"/files/|/watch/", "Files of a session."),
    ("commands", r"/commands", "Commands."),
    ("network", r"/network|/rules|/presets|/secrets", "What sessions reach, and secrets."),
    (
        "changes",
        r"/(changes|diff|undo|redo|apply|discard|boundary|protected)$|^/v1/history$",
        "What sessions change in granted folders.",
    ),
    ("tasks", r"/tasks|/agents", "What agents do."),
    ("sessions", r"/sessions", "Sessions."),
    ("daemon", r"/", "The daemon and its host."),
]
"""Modules, the paths that they are about, and what they say of themselves.

A schema belongs to the first that leads to it, so that none needs a later one.
"""

NAMES = {
    "Session": "SessionInfo",
    "Grant": "GrantInfo",
    "Request": "RequestInfo",
    "Process": "ProcessInfo",
    "Network": "NetworkInfo",
    "NetworkRule": "RuleInfo",
    "Task": "TaskInfo",
    "Agent": "AgentInfo",
    "WantedWrites": "Writes",
    "WantedCaps": "Caps",
    "WantedGuards": "Guards",
    "WantedQuota": "Quota",
    "WantedView": "View",
}
"""Classes with another name here: the plain one belongs to what can be done with it."""

GIVEN = {"Renewal", "SecretFile", "WantedView"}
"""What a caller makes that needs no more than its fields, with what that leads to."""

FIELDS = {("Event", "time"): "datetime | None"}
"""Fields of another type: what is told of a gap has no time."""

METHODS = {
    "Changes": '''
    def __iter__(self) -> Iterator[Change]:
        """Each change."""
        return iter(self.changes)

    def __len__(self) -> int:
        return len(self.changes)
''',
    "TaskMessage": """
    def __str__(self) -> str:
        return f"{self.tool}: {self.text}" if self.tool else self.text
""",
}

LEFT = re.compile(r"PageOf\w+|Problem|Raw|Size")
"""Schemas that are no class here."""

BY_HAND = ["wanted", "results"]


def named(schema: dict[str, Any]) -> str:
    """The schema that is named; what is said to the daemon has no class besides the answer's."""
    name: str = schema["$ref"].rpartition("/")[2]
    return name.removesuffix("Input")


def references(value: Any) -> list[str]:
    """The schemas that something names, in their order."""
    if isinstance(value, dict):
        own = [named(value)] if "/schemas/" in value.get("$ref", "") else []
        return own + [name for one in value.values() for name in references(one)]
    if isinstance(value, list):
        return [name for one in value for name in references(one)]
    return []


def reached(start: list[str], schemas: dict[str, Any]) -> list[str]:
    """Schemas that are led to, those that others need before them."""
    found: list[str] = []

    def visit(name: str) -> None:
        if name not in found:
            for other in references(schemas[name]):
                if other != name:
                    visit(other)
            found.append(name)

    for name in start:
        visit(name)
    return list(dict.fromkeys(found))


def words(schema: dict[str, Any]) -> list[str] | None:
    """The words that a schema lists, if that is all it does."""
    if "enum" in schema and schema.get("type") == "string":
        return list(schema["enum"])
    options = schema.get("oneOf", [])
    if options and all(isinstance(option.get("const"), str) for option in options):
        return [option["const"] for option in options]
    return None


def kind(schema: dict[str, Any]) -> str:
    """The type of a field."""
    if "$ref" in schema:
        name = named(schema)
        return "str" if name == "Raw" else NAMES.get(name, name)
    if "anyOf" in schema:
        inner = [one for one in schema["anyOf"] if one.get("type") != "null"]
        return f"{kind(inner[0])} | None" if len(inner) == 1 else "Any"
    if "allOf" in schema and len(schema["allOf"]) == 1:
        return kind(schema["allOf"][0])
    if (listed := words(schema)) is not None:
        return f"Literal[{', '.join(json.dumps(word) for word in listed)}]"
    wanted = schema.get("type")
    if isinstance(wanted, list):
        [one] = [name for name in wanted if name != "null"]
        return f"{kind({**schema, 'type': one})} | None"
    if wanted == "array":
        return f"list[{kind(schema['items'])}]"
    if wanted == "object":
        values = schema.get("additionalProperties")
        return f"dict[str, {kind(values) if isinstance(values, dict) else 'Any'}]"
    if wanted == "string":
        return "datetime" if schema.get("format") == "date-time" else "str"
    return {"integer": "int", "number": "float", "boolean": "bool"}.get(str(wanted), "Any")


def said(text: str, indent: str = "") -> str:
    """A documentation string."""
    text = re.sub(r"`([^`]+)`", r"``\1``", " ".join(text.split())).replace("\\", "\\\\")
    # The first sentence stands alone if there are more.
    parts = re.split(r"(?<=(?<!e\.g)(?<!i\.e)\.) (?=[A-Z`])", text, maxsplit=1)
    wrapped = [textwrap.fill(one, 94 - len(indent), break_on_hyphens=False) for one in parts]
    body = "\n\n".join(wrapped)
    if "\n" not in body:
        return f'{indent}"""{body}"""\n'
    return textwrap.indent(f'"""{body}\n"""\n', indent)


def literal(name: str, schema: dict[str, Any]) -> str:
    """The source of a list of words."""
    listed = words(schema) or []
    described = [
        f"`{option['const']}`: {option['description'][:1].lower()}{option['description'][1:]}"
        for option in schema.get("oneOf", [])
        if "description" in option
    ]
    text = f"{NAMES.get(name, name)} = Literal[{', '.join(json.dumps(word) for word in listed)}]\n"
    note = " ".join([schema.get("description", name), *described])
    return text + said(note)


def record(name: str, schema: dict[str, Any]) -> str:
    """The source of a dataclass."""
    properties: dict[str, Any] = schema.get("properties", {})
    required = set(schema.get("required", []))
    own = NAMES.get(name, name)
    lines = ["@dataclass(frozen=True)", f"class {own}:", said(schema["description"], "    ")]
    order = [one for one in schema.get("required", []) if one in properties]
    order += [one for one in properties if one not in required]
    for field in order:
        detail = properties[field]
        wanted = FIELDS.get((own, field), kind(detail))
        default = ""
        if field not in required:
            if wanted.startswith(("list[", "dict[")) and "None" not in wanted:
                default = f" = field(default_factory={wanted.partition('[')[0]})"
            else:
                wanted = wanted if wanted == "Any" or "None" in wanted else f"{wanted} | None"
                default = " = None"
        safe = f"{field}_" if keyword.iskeyword(field) else field
        lines.append(f"    {safe}: {wanted}{default}")
        if "description" in detail:
            lines.append(said(detail["description"], "    ").rstrip("\n"))
    return "\n".join(lines) + "\n" + METHODS.get(own, "")


def module(about: str, names: list[str], schemas: dict[str, Any], home: dict[str, str]) -> str:
    """The source of a module."""
    texts: list[str] = []
    needed: dict[str, set[str]] = {}
    for name in names:
        schema = schemas[name]
        texts.append(literal(name, schema) if words(schema) is not None else record(name, schema))
        for other in references(schema):
            if other in home and other not in names:
                needed.setdefault(home[other], set()).add(NAMES.get(other, other))
    body = "\n\n".join(texts)
    uses = {word: re.search(rf"\b{word}\b", body) for word in ("datetime", "Any", "Literal")}
    lines = [NOTE, f'"""{about}"""', "", "from __future__ import annotations", ""]
    if "Iterator[" in body:
        lines += ["from collections.abc import Iterator"]
    if "@dataclass" in body:
        lines += ["from dataclasses import dataclass" + (", field" if "field(" in body else "")]
    if uses["datetime"]:
        lines += ["from datetime import datetime"]
    typing = [word for word in ("Any", "Literal") if uses[word]]
    if typing:
        lines += [f"from typing import {', '.join(typing)}"]
    lines += [""]
    lines += [f"from .{one} import {', '.join(sorted(needed[one]))}" for one in sorted(needed)]
    lines += ["", f"__all__ = {sorted(NAMES.get(name, name) for name in names)!r}", "", body]
    return "\n".join(lines)


def index(modules: dict[str, list[str]]) -> str:
    """The source of the package, which has all names."""
    lines = [
        NOTE,
        '"""What is given to the daemon, and what it answers with.',
        "",
        "What a caller makes is :class:`Grant`, :class:`Rule`, :class:`Network`, :class:`Limits`,",
        ":class:`Writes` and :class:`Size`. The others are answers, field by field as in the",
        'daemon\'s OpenAPI document.\n"""',
        "",
    ]
    lines += [f"from .{one} import {', '.join(names)}" for one, names in modules.items()]
    every = sorted(name for names in modules.values() for name in names)
    lines += ["", f"__all__ = {every!r}", ""]
    return "\n".join(lines)


def exported(path: Path) -> list[str]:
    """What a module that is written by hand says it has."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    sys.exit(f"{path} has no __all__")


def make() -> dict[Path, str]:
    """Every file, with its text."""
    document = json.loads(DOCUMENT.read_text())
    schemas: dict[str, Any] = document["components"]["schemas"]
    answers: dict[str, list[str]] = {name: [] for name, _, _ in PARTS}
    asked: list[tuple[str, str]] = []
    for path, methods in document["paths"].items():
        part = next(name for name, pattern, _ in PARTS if re.search(pattern, path))
        for method in methods.values():
            answers[part] += references(method.get("responses", {}))
            said_to = references([method.get("requestBody", {}), method.get("parameters", [])])
            asked += [(part, name) for name in reached(said_to, schemas)]
    home: dict[str, str] = {}
    found: dict[str, list[str]] = {}
    for part, names in answers.items():
        own = [
            name
            for name in reached(names, schemas)
            if name not in home and not LEFT.fullmatch(name)
        ]
        home |= dict.fromkeys(own, part)
        found[part] = own
    given = {name for name in reached(sorted(GIVEN), schemas) if not LEFT.fullmatch(name)}
    for part, name in asked:
        # Words that are only said to the daemon are here too.
        if name not in home and (words(schemas[name]) is not None or name in given):
            home[name] = part
            found[part].append(name)
    texts: dict[Path, str] = {}
    modules: dict[str, list[str]] = {}
    for part, _, about in PARTS:
        if found[part]:
            texts[TYPES / f"{part}.py"] = module(about, found[part], schemas, home)
            modules[part] = sorted(NAMES.get(name, name) for name in found[part])
    for part in BY_HAND:
        modules[part] = exported(TYPES / f"{part}.py")
    texts[TYPES / "__init__.py"] = index(modules)
    return texts


def main() -> int:
    """Write what is made, or compare it with what is there."""
    check = sys.argv[1:] == ["--check"]
    texts = make()
    by_hand = {TYPES / f"{name}.py" for name in BY_HAND}
    stale = [path for path in TYPES.glob("*.py") if path not in texts and path not in by_hand]
    stale += settle(texts, check=check)
    if stale:
        names = ", ".join(sorted(path.name for path in stale))
        print(f"run tools/answers.py, and remove what is not made any more: {names}")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
