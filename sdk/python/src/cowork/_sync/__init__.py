"""Sessions, for threads. Made from those for asyncio, but for what really differs."""
