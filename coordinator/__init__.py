"""Kafka's classic group coordinator as a pure state machine: inputs in, one Result out.

The group coordinator keeps a group's members, their assignment and its committed offsets, and
stores them in a log. But the state machine here has no log, no sockets and no clock. When a request
arrives, the broker calls it and gets a Result, which asks for replies, appends and timers. When an
append has completed or a timer has fired, the broker calls it again.

Kafka has two group coordinators, an old one in Scala and a new one in Java. This package imitates
the Scala coordinator. Switches replace single behaviours by those of the Java coordinator. In
comments, [S] marks a rule of the Scala coordinator and [J] a rule of the Java coordinator.

Reading order: `states`, `member`, `vote`, `group`; `base_turn` and `turn` (the handling of one
input; timers and appends that outlive it), `delayed` (timers), `rebalance` (the join phase),
`timer_handlers`; `apis` (one module per API) over `validation`, `replies`, `errors` and
`static_member`; `storage` (records, loads, committed offsets); `shard` (the groups of one offsets
partition); `coordinator` (the facade), `invariants`; `transaction` (the transaction coordinator).
"""
