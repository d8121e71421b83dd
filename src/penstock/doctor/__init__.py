"""Does the live site agree with its site file? Many small checks, each in words and with a remedy."""
