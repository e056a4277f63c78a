"""Kafka's classic group coordinator as a pure state machine: inputs in, one Result out.

The package knows no log, socket or clock. It requests appends in a Result, and the outcome of each
append comes back as a later input; the content of a log arrives as batches of a load. In comments,
[S] marks a rule of Kafka's Scala coordinator (the default) and [J] one of the Java coordinator.

Reading order: `states`, `member`, `vote`, `group`; `base_turn` and `turn` (the handling of one
input; timers and appends that outlive it), `delayed` (timers), `rebalance` (the join phase),
`timer_handlers`; `apis` (one module per API) over `validation`, `replies`, `errors` and
`static_member`; `storage` (records, loads, committed offsets); `shard` (the groups of one offsets
partition); `coordinator` (the facade), `invariants`; `transaction` (the transaction coordinator).
"""
