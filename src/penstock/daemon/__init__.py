"""penstockd: sockets, loops, wiring."""
