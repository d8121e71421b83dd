"""penstockd: its socket, its loops, and how its parts are put together."""
