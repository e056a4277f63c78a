"""Faults: what can be broken, how it is undone, and the arguments.

Reading order: `base` (the interface of faults), `processes`, `machines`, `leadership`, `links`,
`groups`, `topics`, `rollouts` (the faults; `orchestration` replaces members one by one), `registry`
(all by name).
"""
