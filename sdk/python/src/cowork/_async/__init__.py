"""Sessions, for asyncio."""
