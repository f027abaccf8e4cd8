"""Decisions, and nothing else: no I/O, no await; what time it is is an argument."""
