"""Nodes and what joins them: hosts, links, controller, brokers, clients, and three runtimes.

Reading order: `host` (the only thing a node may touch, and its connections), `links` (what faults
make of frames), the nodes `controller`, `broker` and `client`, `zookeeper` (the ensemble of an
older world); `spec`, `machines` (which nodes share one), `node_factory`, `runtime` (what an
experiment sees) and `lives` (which act on a node is legal when). Three runtimes: `virtual` (one
process, a clock that jumps), `local` (one process, real time) and `ray` (real processes), these two
on `realtime`, where brokers may listen for Kafka clients too (`wire`). Beside them `storage` (a
broker's disk as files), `trace` (files of events), `metrics`, `fan_out` (work that is shared out to
workers), `worker_processes` (workers on this machine), `disk_errors` (what a file system refuses),
`checkout` (where our packages are) and `compiled` (the finder of compiled modules).
"""
