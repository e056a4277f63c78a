"""`replay`: plays a run in virtual time again.

Reading order: `command`, `recording` (the run); `breakpoint` and `state_view` (inspection of the
cluster at one moment).
"""
