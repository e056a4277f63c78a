"""Nodes and what joins them: host, connections, controller, broker, clients, files, two runtimes.

Reading order: `host` (the only thing a node may touch), `frames` and `connections`, `loop` and
`virtual` (virtual time), `controller`, `broker`, `consumer`, `producer`, `spec` and `runtime` (what
an experiment sees), `process` and `ray_nodes` (Ray), `trace_files`.
"""
