"""Nodes and what joins them: hosts, links, controller, brokers, clients, and two runtimes.

Reading order: `host` (the only thing a node may touch, and its connections), `links` (what faults
make of frames), the nodes `controller`, `broker` and `client`; `spec`, `node_factory` and `runtime`
(what an experiment sees). Two runtimes: `virtual` (one process, a clock that jumps), and `ray`
(real processes) on `realtime`, which serves any runtime in real time. Beside them `storage` (a
broker's disk as files), `trace` (files of events) and `metrics`.
"""
