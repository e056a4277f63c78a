"""Checkers: observers of the trace that keep their own, simpler model of what Kafka promises.

Reading order: `context` (what they know beside the trace), `base` (what a checker is), `evidence`
(facts that several of them read, each followed once in a run), then one module for each promise:
`fencing`, `durable_commits`, `generations`, `ownership`, `liveness`, `recovery`, `readers`,
`answers`, `administration`, `stability`, `needless_rebalance`, `processing`, `consumed`; of groups
on ZooKeeper `zookeeper`, `zookeeper_consumers`; `unpromised` (judged only where a group asks for
it); `registry` (all of them, fed together); `lost_rows` (checks that a lost machine leaves without
evidence).
"""
