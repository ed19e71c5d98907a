"""Runs commands in a session that sees one folder, and shows their output as it comes."""

import tempfile
from pathlib import Path

from cowork import CommandFailed, Session

with tempfile.TemporaryDirectory() as folder:
    Path(folder, "numbers.txt").write_text("3\n1\n2\n")
    with Session.create(folders=[folder]) as session:
        grant = session.info.grants[0]
        result = session.run("sort -n numbers.txt | tee sorted.txt", cwd=grant.at, stream=print)
        print("exit", result.exit_code, "after", result.duration, "seconds")
        try:
            session.run(["cat", "/etc/shadow"], check=True)
        except CommandFailed as error:
            print("refused:", error.result.stderr.strip())
    print("on the host:", Path(folder, "sorted.txt").read_text().split())
