"""Lets a session work on a folder, looks at what it changed, and takes it back."""

import tempfile
from pathlib import Path

from cowork import Grant, Session

with tempfile.TemporaryDirectory() as folder:
    Path(folder, "notes.txt").write_text("write more\n")
    Path(folder, "old.txt").write_text("precious\n")
    with Session.create(folders=[Grant(folder, name="notes")]) as session:
        session.protected.add("*.lock", "deny", reason="the build makes it")
        session.run("sed -i s/more/less/ notes.txt; rm old.txt; touch a.lock", cwd="mnt/notes")
        for change in session.changes():
            print(change.kind, change.path, [mark.mark for mark in change.marks])
        for difference in session.diff():
            print(difference.text or difference.note)
        print("brought back:", [name.host for name in session.undo().done])
    print("on the host:", sorted(path.name for path in Path(folder).iterdir()))
