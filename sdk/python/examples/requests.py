"""Answers what a session asks for: it wants a folder, and gets one read-only."""

import tempfile
from pathlib import Path

from cowork import Request, Session

ASK = """
curl -s --unix-socket $COWORK_REQUESTS http://cowork/v1/ask --json \
    '{"wanted": "the invoices", "reason": "to add them up", "wait": 20}' >/dev/null
cat mnt/invoices/*
"""

with tempfile.TemporaryDirectory() as folder, Session.create() as session:
    Path(folder, "may.txt").write_text("12.50\n")

    def decide(request: Request) -> None:
        """Say yes to a folder."""
        print("it wants", request.wanted, request.reason)
        request.allow_once(folder, name="invoices", access="ro")

    session.on_request(decide)
    print(session.run(ASK).output)
    print([record.type for record in session.audit.list() if record.type.startswith("request")])
    print("the record is whole:", session.audit.verify().whole)
