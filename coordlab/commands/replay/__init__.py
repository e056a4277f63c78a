"""`replay`: a run in virtual time once more.

Reading order: `command`, `recording`; `breakpoint` and `state_view` (one moment).
"""
