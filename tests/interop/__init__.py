"""The real Go River and this one on the same database; opt-in, by ``make test-interop``."""
