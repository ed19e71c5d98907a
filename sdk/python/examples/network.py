"""Lets a session reach one host, and shows what it was refused."""

from cowork import Session

with Session.create(network=["example.com"]) as session:
    session.network.deny("**.pastebin.example", reason="use outputs instead")
    for url in ("https://example.com/x", "https://files.pastebin.example", "https://other.example"):
        found = session.network.explain(url)
        print(url, found.outcome, found.code)
    session.run("curl -s https://files.pastebin.example/x")
    for refusal in session.network.refused():
        print("refused:", refusal.target.host, refusal.code)
