#!/usr/bin/python3
"""An agent that does as the prompt's words say, and speaks as Claude Code does about tasks.

It is not Claude: what it does is decided by the first word of the last line that it is told.
"""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path
from typing import Any

CONVERSATION = str(uuid.uuid4())


def say(**message: Any) -> None:
    """Write a line."""
    print(json.dumps({"session_id": CONVERSATION, **message}), flush=True)


def hear() -> dict[str, Any]:
    """Read a line."""
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    message: dict[str, Any] = json.loads(line)
    if message["type"] == "user":
        say(type="user", isReplay=True, uuid=message.get("uuid"), message=message["message"])
    return message


def words(message: dict[str, Any]) -> str:
    """The last line that was said."""
    text: str = message["message"]["content"][-1]["text"]
    return text.strip().splitlines()[-1]


def block(**content: Any) -> None:
    """Say a part of the answer."""
    say(type="assistant", message={"role": "assistant", "content": [content]})


def write(name: str) -> str:
    """Write a file, if that is allowed."""
    given = {"file_path": name, "content": "written by the agent\n"}
    block(type="tool_use", id="use-1", name="Write", input=given)
    question = {"subtype": "can_use_tool", "tool_name": "Write", "input": given}
    say(type="control_request", request_id="question-1", request=question)
    while (answer := hear())["type"] != "control_response":
        if answer["type"] == "control_request":
            return interrupted(answer)
    decided = answer["response"]["response"]
    allowed = decided["behavior"] == "allow"
    if allowed:
        Path(name).write_text(given["content"])
    result = {"type": "tool_result", "tool_use_id": "use-1", "is_error": not allowed}
    result["content"] = "done" if allowed else decided["message"]
    say(type="user", message={"role": "user", "content": [result]})
    return f"wrote {name}" if allowed else "was not allowed"


def plan() -> None:
    """Tell a plan."""
    steps = [("read", "completed"), ("think", "in_progress"), ("write", "pending")]
    todos = [{"content": text, "status": status} for text, status in steps]
    block(type="tool_use", id="use-0", name="TodoWrite", input={"todos": todos})


def interrupted(request: dict[str, Any]) -> str:
    """Stop as told."""
    response = {"subtype": "success", "request_id": request["request_id"], "response": {}}
    say(type="control_response", response=response)
    return "stopped"


def work(prompt: str) -> tuple[str, bool]:
    """The answer to a prompt, and whether it is a failure."""
    block(type="text", text=f"I was told: {prompt}")
    match prompt.split(maxsplit=1):
        case ["plan", *_]:
            plan()
            return "planned", False
        case ["write", name]:
            return write(name), False
        case ["wait", *_]:
            heard = hear()
            if heard["type"] == "control_request":
                return interrupted(heard), True
            return f"heard: {words(heard)}", False
        case ["fail", *why]:
            return " ".join(why), True
        case ["leave", *_]:
            print("gone fishing", file=sys.stderr)
            sys.exit(3)
        case ["where", *_]:
            return (
                f"in {Path.cwd()} with {sorted(path.name for path in Path.cwd().iterdir())}",
                False,
            )
        case _:
            return f"done: {prompt}", False


def main() -> None:
    """Do one task after the other."""
    say(type="system", subtype="init", model="scripted-1")
    while True:
        told = hear()
        if told["type"] != "user":
            continue
        answer, failed = work(words(told))
        usage = {"input_tokens": 10, "output_tokens": 5}
        say(
            type="result",
            subtype="error_during_execution" if failed else "success",
            is_error=failed,
            result=answer,
            usage=usage,
            num_turns=1,
            total_cost_usd=0.01,
        )


if __name__ == "__main__":
    main()
