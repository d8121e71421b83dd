"""The intake's journal: its intents and results, from which it recovers after a crash at any point."""
