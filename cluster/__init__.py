"""Nodes and what joins them: host, connections, controller, broker, clients, files, two runtimes.

Reading order: `host` (the only thing a node may touch), `frames`, `client_connection` and
`connections`, `keyed_timers`; the nodes `controller`, `broker`, `client`; `spec`, `nodes` and
`runtime` (what an experiment sees); virtual time: `loop`, `randomness`, `virtual`; Ray: `clock`,
`tcp`, `real_host`, `process`, `ray_layout`, `ray_services`, `ray_nodes` (the only module that
imports ray), `ray_fleet`, `ray_runtime`, and `listeners_file` and `guest` (who asks a running
cluster from outside); files: `file_storage`, `trace_files`, `trace_parquet`,
`trace_digest`, `machine_files`.
"""
