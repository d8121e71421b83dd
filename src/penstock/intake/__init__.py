"""The intake: submits each file of the drop folder exactly once, as its owner, and reports where it went."""
