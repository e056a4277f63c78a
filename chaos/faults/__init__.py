"""Faults: what can be broken, how it is undone, and what its arguments may be.

Reading order: `base` (what a fault is), `processes`, `leadership`, `links`, `groups` (the
faults), `registry` (every fault by name).
"""
