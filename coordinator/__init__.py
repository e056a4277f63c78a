"""Kafka's classic group coordinator as a pure state machine: inputs in, one Result out.

It must not know logs, sockets or clocks: appends are asked for and their completion comes back as
an input; what a log holds comes in as batches of a load. Reading order: `states`, `member`,
`offsets`, `vote`, `group`; `turn` (one input being handled, timers and appends that outlive it),
`delayed` (which timers run), `rebalance` (the join phase), `expiry` (timers that fire); one module
per API (`join_group` with `static_member`, `sync_group`, `heartbeat`, `leave_group`,
`offset_commit`, `offset_fetch`) over `validation`, `replies`, `errors`; `store`, `load`, `shard`
(the groups of one offsets partition); `coordinator` (the facade), `invariants`.
"""
