"""Checkers: each reads the trace of a run and decides whether one promise of Kafka was kept.

A checker knows nothing of the code that it judges. It has its own, much simpler model of what must
be true.

Reading order:
- `context`: facts about the experiment that the trace lacks;
- `base`: the class Checker;
- `evidence`: facts that several checkers share;
- one module per promise: `fencing`, `durable_commits`, `generations`, `ownership`, `liveness`,
  `recovery`, `readers`, `answers`, `administration`, `stability`, `needless_rebalance` and
  `processing` (with `consumed`);
- promises of groups on ZooKeeper: `zookeeper`, and the modules of `zookeeper_groups`;
- `unpromised`: properties that no design promises, and that a group may demand;
- `registry`: all checkers together;
- `lost_rows`: checks that lack evidence after the loss of a machine.
"""
