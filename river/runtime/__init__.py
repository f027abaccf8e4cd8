"""What runs while a client works: asyncio, in one event loop, whatever the colour of its driver and workers."""
