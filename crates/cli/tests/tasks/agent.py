#!/usr/bin/python3
"""An agent that does what its prompt says, word for word, in Claude Code's stream of JSON lines.

The last part of a user's message is a list of orders, one in each line:
say, think, plan, run, may, write, sleep, hear, raw, huge, die, places, self, other, answer.
"""

import json, os, queue, subprocess, sys, threading, time, uuid

inbox = queue.Queue()
replies = {}
interrupted = threading.Event()
argv = sys.argv[1:]
replays = "--replay-user-messages" in argv
resumed = argv[argv.index("--resume") + 1] if "--resume" in argv else None
conversation = resumed or str(uuid.uuid4())
model = argv[argv.index("--model") + 1] if "--model" in argv else "script-1"
turns, cost, calls = 0, 0.0, 0


def put(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def listen():
    for line in sys.stdin:
        message = json.loads(line)
        if message["type"] == "user":
            inbox.put(message)
        elif message["type"] == "control_response":
            response = message["response"]
            replies[response["request_id"]] = response
        elif message["type"] == "control_request":
            assert message["request"]["subtype"] == "interrupt", message
            interrupted.set()
            put({"type": "control_response", "response": {
                "subtype": "success", "request_id": message["request_id"]}})
    inbox.put(None)


class Interrupted(Exception):
    pass


def check():
    if interrupted.is_set():
        raise Interrupted


def heard(message):
    if replays:
        put({**message, "isReplay": True})
    return message["message"]["content"][-1]["text"]


def assistant(block):
    put({"type": "assistant", "message": {"role": "assistant", "content": [block]},
         "parent_tool_use_id": None, "session_id": conversation})


def use(name, given):
    global calls
    calls += 1
    call = f"call-{os.getpid()}-{calls}"
    assistant({"type": "tool_use", "id": call, "name": name, "input": given})
    return call


def result(call, text, failed=False):
    put({"type": "user", "message": {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": call, "content": text, "is_error": failed}]},
        "parent_tool_use_id": None, "session_id": conversation})


def run(command, call=None):
    call = call or use("Bash", {"command": command, "description": "as told"})
    done = subprocess.run(command, shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    result(call, done.stdout, done.returncode != 0)


def control(request):
    name = f"question-{uuid.uuid4()}"
    put({"type": "control_request", "request_id": name, "request": request})
    while name not in replies:
        check()
        time.sleep(0.01)
    return replies.pop(name)


def may(command):
    given = {"command": command, "description": "as told"}
    call = use("Bash", given)
    response = control({"subtype": "can_use_tool", "tool_name": "Bash", "input": given,
                        "permission_suggestions": [], "tool_use_id": call})
    assert response["subtype"] == "success", response
    decided = response["response"]
    if decided["behavior"] == "allow":
        assert decided["updatedInput"] == given, decided
        run(command, call)
    else:
        result(call, "refused: " + decided["message"], True)


def order(line, message):
    word, _, rest = line.strip().partition(" ")
    if word == "say":
        assistant({"type": "text", "text": rest})
    elif word == "think":
        assistant({"type": "thinking", "thinking": rest, "signature": "s"})
    elif word == "plan":
        states = ["completed", "in_progress"] + ["pending"] * 10
        todos = [{"content": c, "status": s, "activeForm": c} for c, s in zip(rest.split("|"), states)]
        result(use("TodoWrite", {"todos": todos}), "noted")
    elif word == "run":
        run(rest)
    elif word == "may":
        may(rest)
    elif word == "write":
        path, _, text = rest.partition(" ")
        call = use("Write", {"file_path": path, "content": text})
        with open(path, "w") as file:
            file.write(text)
        result(call, "written")
    elif word == "sleep":
        end = time.monotonic() + float(rest)
        while time.monotonic() < end:
            check()
            time.sleep(0.01)
    elif word == "tick":
        for number in range(int(rest)):
            check()
            assistant({"type": "text", "text": f"tick {number}"})
            time.sleep(0.02)
    elif word == "hear":
        while True:
            check()
            try:
                assistant({"type": "text", "text": "heard: " + heard(inbox.get(timeout=0.01))})
                return
            except queue.Empty:
                pass
    elif word == "raw":
        sys.stdout.write(rest + "\n")
        sys.stdout.flush()
    elif word == "huge":
        kind, count = rest.split()
        sys.stdout.write('{"type":"' + kind + '","message":"' + "x" * int(count) + '"}\n')
        sys.stdout.flush()
    elif word == "die":
        sys.stderr.write("the end of the script\n")
        sys.stderr.flush()
        os._exit(int(rest))
    elif word == "places":
        assistant({"type": "text", "text": message["message"]["content"][0]["text"]})
    elif word == "self":
        assistant({"type": "text", "text": f"pid {os.getpid()} turn {turns} resumed {resumed} cwd {os.getcwd()}"})
    elif word == "other":
        assistant({"type": "text", "text": json.dumps(control({"subtype": "mcp_message"}))})
    elif word == "answer":
        return rest
    elif word:
        raise ValueError(line)
    return None


def turn(message):
    global turns, cost
    turns += 1
    put({"type": "system", "subtype": "init", "session_id": conversation, "model": model,
         "cwd": os.getcwd(), "tools": ["Bash", "Write"]})
    answer, failed = "ok", None
    try:
        for line in heard(message).splitlines():
            check()
            answer = order(line, message) or answer
    except Interrupted:
        failed = "error_during_execution"
    interrupted.clear()
    cost += 0.25
    put({"type": "from_the_future", "payload": [1, 2]})
    put({"type": "result", "subtype": failed or "success", "is_error": failed is not None,
         "result": answer, "num_turns": 2, "total_cost_usd": cost, "session_id": conversation,
         "usage": {"input_tokens": 10, "output_tokens": 20, "cache_read_input_tokens": 30,
                   "cache_creation_input_tokens": 40}})


threading.Thread(target=listen, daemon=True).start()
while True:
    message = inbox.get()
    if message is None:
        break
    turn(message)
