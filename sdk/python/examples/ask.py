"""Asks Claude Code to do something in a session, shows what it does, and what came of it."""

import tempfile
from pathlib import Path

from cowork import Request, Session


def decide(request: Request) -> str:
    """Let it write files, and nothing else."""
    print("it asks:", request.kind, request.wanted)
    return "allow_once" if request.kind == "tool" and "Write" in request.wanted else "reject_once"


with tempfile.TemporaryDirectory() as folder:
    with Session.create(folders=[folder], agent="claude") as session:
        session.on_request(decide)
        answer = session.ask("write haiku.txt", stream=print)
        print("it answered:", answer.output)
        print("its plan:", [(step.text, step.state) for step in answer.plan])
        print("it used:", answer.usage.output_tokens, "tokens in", answer.duration, "seconds")
        if answer.summary is not None:
            print("it changed:", [change.path for change in answer.summary.changes])
    print("on the host:", [path.name for path in Path(folder).iterdir()])
