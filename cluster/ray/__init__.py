"""The Ray runtime: node processes as actors, on one or more machines; faults kill real processes.

Ray is a framework that starts processes on several machines and calls objects in them (actors).

Reading order: `layout` (the processes of a cluster, and their machines), `actors` (the only module
that imports ray for nodes; its actors are `cluster.realtime.services`), `environment`, `leavings`
(folders of ended Rays), `session_guard` (ends the agents of a Ray whose driver was killed),
`control_plane` (rules and addresses for every process), `machine_watch` (machines that answer, are
silent or lost), `fleet` (processes and machines), `lives` (nodes), `runtime`; `tasks` (work of
`cluster.fan_out` on workers).
"""
