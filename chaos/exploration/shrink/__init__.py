"""Shrinking: from a failing schedule to the smallest one found that fails in the same way.

Reading order: `edits` (plain changes of an experiment), `settings`, `steps`, `passes` (the order in
which changes are tried), `shrink`, `shrunk_file`.
"""
