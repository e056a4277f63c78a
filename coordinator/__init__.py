"""Kafka's classic group coordinator as a pure state machine: inputs in, one Result out.

A group's coordinator is the broker that keeps its members, their assignment and its committed
offsets. The state machine stores them as records in a log, but knows no log, socket or clock. A
handler requests an append in its Result, and the outcome of the append comes back as a later input.
A load (the reading of a log by a new coordinator) passes the log's batches in as inputs. In
comments, [S] marks a rule of Kafka's Scala coordinator (the default) and [J] a rule of its Java
coordinator.

Reading order: `states`, `member`, `vote`, `group`; `base_turn` and `turn` (the handling of one
input; timers and appends that outlive it), `delayed` (timers), `rebalance` (the join phase),
`timer_handlers`; `apis` (one module per API) over `validation`, `replies`, `errors` and
`static_member`; `storage` (records, loads, committed offsets); `shard` (the groups of one offsets
partition); `coordinator` (the facade), `invariants`; `transaction` (the transaction coordinator).
"""
