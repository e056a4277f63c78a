"""Faults: what can be broken, how it is undone, and what its arguments may be.

Reading order: `base` (what a fault is), `processes`, `machines`, `leadership`, `links`, `groups`,
`rollouts` (the faults; `orchestration` is how members are replaced), `registry` (every fault by
name).
"""
