"""Twelve bugs planted in the real code, and the search that must find each.

Reading order: `README.md` (the list, written down before the search was tuned), `bugs` (what each
changes), `hunt` (the search, the same seed without the bug, the shrinking), `record` (the table in
docs/PLANTED_BUGS.md).
"""
