"""The heart: admission, launching and release of a job's pods."""
