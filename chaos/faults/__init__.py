"""Faults: what can be broken, how it is undone, and the arguments.

Reading order: `base` (the interface of faults), `processes`, `machines`, `leadership`, `links`,
`groups`, `topics`, `rollouts` (the faults; `orchestration` does the work of `rollouts`), `registry`
(all faults by name).
"""
