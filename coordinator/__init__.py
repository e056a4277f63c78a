"""Kafka's classic group coordinator as a pure state machine: inputs in, one Result out.

It must not know logs, sockets or clocks: appends are asked for and their completion comes back as
an input; what a log holds comes in as batches of a load.

Reading order: `states`, `member`, `vote`, `group`; `base_turn` and `turn` (one input being handled,
timers and appends that outlive it), `delayed` (which timers run), `rebalance` (the join phase),
`timer_handlers`; `apis` (one module per API) over `validation`, `replies`, `errors` and
`static_member`; `storage` (records, loads, committed offsets); `shard` (the groups of one offsets
partition); `coordinator` (the facade), `invariants`; `transaction` (the transaction coordinator).
"""
