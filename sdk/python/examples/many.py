"""Runs several sessions at a time with asyncio."""

import asyncio

from cowork import AsyncSession


async def work(number: int) -> str:
    """Compute something in a session of its own."""
    async with AsyncSession.create(labels={"example": "many"}) as session:
        result = await session.run(["sh", "-c", f"echo $(({number} * {number}))"], check=True)
        return result.stdout.strip()


async def main() -> None:
    """Do it four times at once."""
    print(await asyncio.gather(*(work(number) for number in range(4))))


asyncio.run(main())
