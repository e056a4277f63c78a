"""The Ray runtime: node processes as actors, spread over machines, that can really be killed.

Reading order: `layout` (which nodes share a process, and where), `actors` (the only module that
imports ray for nodes; what its actors do is `cluster.realtime.services`), `environment`,
`leavings` (folders of ended Rays), `session_guard` (ends the agents of a Ray whose driver was
killed), `control_plane` (rules and addresses for every process), `machine_watch` (machines that
answer, are silent or lost), `fleet`, `lives`, `runtime`; `tasks` (work of `cluster.fan_out` on
workers).
"""
