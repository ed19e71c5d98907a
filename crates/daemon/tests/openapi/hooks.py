"""Makes requests that schemathesis makes up meet real things, and nothing that matters.

The file named by COWORK_FUZZ says which sessions, folders and files were made for this. Ids and
names are offered beside what the document allows, so that requests reach beyond "there is none".
A folder of the host is only ever one that was made for this, whatever is made up: the daemon under
test may be root's. At the end the tally says how each operation was answered.
"""

import atexit
import base64
import collections
import contextlib
import copy
import itertools
import json
import os
import re
import time
import urllib.error
import urllib.request

import schemathesis

with open(os.environ["COWORK_FUZZ"], encoding="utf-8") as file:
    FACTS = json.load(file)

# Operations that would take away what the others need; they get a session for that.
SPARE = {"stopSession", "pauseSession", "cancelSession", "changeSession"}
# Operations on a command that runs, and the command that they get.
SLEEP = {"argv": ["sleep", "60"]}
RUNNING = {
    "attach": SLEEP,
    "cancelCommand": SLEEP,
    "signalCommand": SLEEP,
    "pauseCommand": SLEEP,
    "resumeCommand": SLEEP,
    "writeInput": {"argv": ["cat"], "streams": {"stdin": "pipe"}},
    "resizeTerminal": {"argv": ["sleep", "60"], "streams": {"stdin": "terminal"}},
}
# Operations on changes, and the folder in which something changes before.
CHANGED = {
    "applyChanges": "stage",
    "discardChanges": "stage",
    "undo": "kept",
    "redo": "kept",
    "listChanges": "kept",
    "showDifferences": "kept",
}
# Fields of requests that name folders of the host.
FOLDERS = ("path", "home", "outputs")
KEY = re.compile("[!-~]([ -~]{0,198}[!-~])?")
KEYS = itertools.count()
TALLY = collections.defaultdict(collections.Counter)


def offer(schema, values):
    """The schema, or one of these."""
    return {"anyOf": [{"enum": values}, copy.deepcopy(schema)]}


def offered(parameter, operation):
    of_requests = operation["operationId"] in ("showRequest", "showAsked", "decide")
    of_secrets = operation["operationId"] in ("setSecret", "removeSecret")
    return {
        "id": FACTS["sessions"],
        "number": FACTS["requests"] if of_requests else FACTS["commands"],
        "name": FACTS["secrets"] if of_secrets else FACTS["grants"],
        "pattern": FACTS["patterns"],
        "url": FACTS["urls"],
        "root": FACTS["roots"],
        "path": FACTS["files"],
        "host": FACTS["folders"],
        "session": FACTS["inside"] if operation["operationId"] == "translatePath" else None,
    }.get(parameter["name"])


@schemathesis.hook
def before_load_schema(context, raw_schema):
    # Here it is spoken to over TCP, where nobody is let in without the token.
    raw_schema["security"] = [{"token": []}]
    for methods in raw_schema["paths"].values():
        for operation in methods.values():
            for parameter in operation.get("parameters", []):
                values = "name" in parameter and offered(parameter, operation)
                if values:
                    parameter["schema"] = offer(parameter["schema"], values)
            bodies = FACTS["bodies"].get(operation["operationId"])
            if bodies:
                media = operation["requestBody"]["content"]["application/json"]
                media["schema"] = offer(media["schema"], bodies)
    schemas = raw_schema["components"]["schemas"]
    for schema in ("NewGrant", "Decide"):
        properties = schemas[schema]["properties"]
        properties["path"] = offer(properties["path"], FACTS["folders"])


def plain(value):
    """What a path of the API says, as text."""
    if isinstance(value, dict) and isinstance(value.get("base64"), str):
        try:
            return base64.b64decode(value["base64"]).decode("utf-8", "replace")
        except ValueError:
            return ""
    return value if isinstance(value, str) else ""


def confine(value):
    """Puts a name that leads nowhere in place of every folder that was not made for this."""
    if isinstance(value, list):
        for item in value:
            confine(item)
    elif isinstance(value, dict):
        for field, item in value.items():
            if field in FOLDERS and plain(item) not in FACTS["folders"] and "/" in plain(item):
                value[field] = "nowhere"
            else:
                confine(item)


def ask(path, body=None):
    """What the daemon answers to a request of ours."""
    request = urllib.request.Request(
        f"{FACTS['url']}/v1/sessions/{path}",
        data=None if body is None else json.dumps(body).encode(),
        headers={
            "Authorization": f"Bearer {FACTS['token']}",
            "Content-Type": "application/json",
        },
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def selects(query):
    """Whether a query about changes is one that the document allows."""
    if not isinstance(query, dict) or not set(query) <= {"set", "path"}:
        return False
    number, path = str(query.get("set", "1")), query.get("path", "x")
    good = re.fullmatch("[1-9][0-9]{0,8}", number) is not None
    return good and isinstance(path, str) and 0 < len(path.encode("utf-8", "replace")) < 4096


def start(session, command):
    """The number of a command that was just started."""
    return ask(f"{session}/commands", command)["number"]


def change(session, name):
    """Something changes in a folder of the session, and is undone if it is to be done again."""
    number = start(session, {"shell": f"date +%N > mnt/{CHANGED[name]}/made"})
    for _ in range(100):
        if ask(f"{session}/commands/{number}")["state"] != "running":
            break
        time.sleep(0.01)
    if name == "redo":
        ask(f"{session}/undo", {})


@schemathesis.hook
def before_call(context, case, kwargs):
    definition = case.operation.definition.raw
    name = definition["operationId"]
    confine(case.body)
    key = (case.headers or {}).get("Idempotency-Key")
    data = case.meta and case.meta.phase.data
    about_headers = getattr(data, "parameter_location", None) == "header"
    if isinstance(key, str) and KEY.fullmatch(key) and not about_headers:
        # A key is for one request; those that are made up are the same again and again.
        case.headers["Idempotency-Key"] = f"fuzz-{next(KEYS)}"
    path = case.path_parameters
    if path.get("id") in FACTS["steady"]:
        if name == "removeSession":
            path["id"] = FACTS["doomed"]
        elif name in SPARE:
            path["id"] = FACTS["spare"]
        elif name in RUNNING and str(path.get("number")) in map(str, FACTS["commands"]):
            path["number"] = start(path["id"], RUNNING[name])
        elif name in CHANGED:
            # What was made up before may stand in the way; then this is made up as well.
            with contextlib.suppress(urllib.error.HTTPError):
                change(path["id"], name)
    if name in ("listChanges", "showDifferences") and selects(case.query):
        # What is made up selects nothing: all of it is asked for.
        case.query = {}
    if name == "changeNetwork" and "stateful" in str(case.meta and case.meta.phase.name).lower():
        # Whatever is made up there is nowhere, which is not the fault of the session just made.
        for field in ("secrets", "presets"):
            if isinstance(case.body, dict) and isinstance(case.body.get(field), list):
                case.body[field] = []
    if name == "watchFiles" and (not case.query or "wait" not in case.query):
        # A stream has no end unless it is told to have one.
        case.query = {**(case.query or {}), "wait": 0}
    for given in (case.body, case.query):
        # Nobody answers what is asked for here: whoever waits, waits for all of it.
        wait = given.get("wait") if isinstance(given, dict) else None
        if isinstance(wait, (int, float)) and not isinstance(wait, bool) and 0 <= wait <= 600:
            given["wait"] = 0
        elif isinstance(wait, str) and re.fullmatch("[0-9]{1,3}", wait) and int(wait) <= 600:
            given["wait"] = "0"
    if name == "output" and isinstance(case.query, dict) and case.query.get("follow"):
        # What is followed has no end as long as the command has none.
        case.query.pop("follow")


@schemathesis.hook
def after_call(context, case, response):
    status = str(response.status_code)
    if response.status_code >= 400 and response.status_code != 405:
        status += " " + str(response.json().get("code"))
    TALLY[case.operation.definition.raw["operationId"]][status] += 1


@atexit.register
def write_tally():
    with open(FACTS["tally"], "w", encoding="utf-8") as file:
        json.dump(TALLY, file)
