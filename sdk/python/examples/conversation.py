"""Talks to a program that runs in a session: writes to it, reads from it, interrupts it."""

import signal

from cowork import Session

with Session.create() as session, session.exec(["cat"], stdin=True) as process:
    process.write("hello\n")
    print("it says", next(process).text.strip())
    process.close_stdin()
    print("it ended with", process.wait().exit_code)

    with session.exec(
        "trap 'echo bye; exit 7' INT; echo ready; while :; do sleep 0.1; done"
    ) as loop:
        print(next(loop).text.strip())
        loop.signal(signal.SIGINT)
        print(loop.wait().output.strip(), loop.command.code)
