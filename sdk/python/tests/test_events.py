from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from cowork import AsyncClient, AsyncSession, Client, Session

from .aio import aio
from .conftest import kill_daemon

if TYPE_CHECKING:
    from .conftest import Site


def test_events_come_from_now_on_or_from_a_number(session: Session) -> None:
    with session.events() as events:
        session.run("true")
        first = next(events)
        kinds = [first.type]
        while "command.ended" not in kinds:
            kinds.append(next(events).type)
        assert first.session == session.id
    assert list(events) == []
    with session.events(after=first.id - 1) as again:
        assert next(again).id == first.id
    with session.events(type="command.ended", after=0) as ends:
        assert next(ends).type == "command.ended"


def test_a_stream_that_is_closed_wakes_its_reader(session: Session) -> None:
    events = session.events(type="nothing.at-all").open()
    seen: list[object] = []
    reader = threading.Thread(target=lambda: seen.extend(events))
    reader.start()
    time.sleep(0.2)
    events.close()
    reader.join(10)
    assert not reader.is_alive()
    assert seen == []


def test_none_is_lost_and_none_comes_twice_when_the_daemon_is_killed(site: Site) -> None:
    with Session.create() as session, session.events(type="command.ended") as events:
        session.run("true")
        seen = [next(events)]
        kill_daemon(session.client.info().pid)
        session.run("true")
        session.run("true")
        seen += [next(events), next(events)]
    with Client() as client, client.events(type="command.ended", after=0) as all_events:
        assert [next(all_events) for _ in seen] == seen
    assert site.state.exists()


def test_the_record_is_listed_exported_and_verified(session: Session, client: Client) -> None:
    session.run("true")
    records = session.audit.list()
    kinds = [record.type for record in records]
    assert "command.started" in kinds
    assert {record.session for record in records} == {session.id}
    assert session.audit.list(type="command.started")[0].data
    first, last = records[0].time, records[-1].time
    assert session.audit.list(until=first) == [one for one in records if one.time <= first]
    assert session.audit.list(since=last)
    assert session.audit.list(since="2999-01-01T00:00:00Z") == []
    assert len(session.audit.export().splitlines()) == len(session.audit.list())
    assert session.audit.export("csv").count(b"\n") == len(session.audit.list()) + 1
    verified = client.audit.verify()
    assert verified.whole
    assert verified.records >= len(records)
    assert verified.problems == []


@aio
async def test_asyncio_has_events_and_a_record() -> None:
    async with AsyncClient() as client, AsyncSession.create(client=client) as session:
        async with session.events() as events:
            await session.run("true")
            async for event in events:
                if event.type == "command.ended":
                    break
        assert [event async for event in events] == []
        assert (await client.audit.verify()).whole
        assert await session.audit.list(type="command.started")


@aio
async def test_asyncio_takes_events_up_again(site: Site) -> None:
    async with AsyncSession.create() as session, session.events(type="command.ended") as events:
        await session.run("true")
        first = await anext(events)
        kill_daemon((await session.client.info()).pid)
        await session.run("true")
        assert (await anext(events)).id > first.id
    assert site.state.exists()
