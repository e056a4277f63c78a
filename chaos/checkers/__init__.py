"""Checkers: observers of the trace that keep their own, simpler model of what Kafka promises.

Reading order: `base` (what a checker is), `evidence` (facts that several of them follow), then one
module for each promise: `fencing`, `durable_commits`, `generations`, `ownership`, `liveness`,
`needless_rebalance`, `processing`; `registry` (all of them, fed together).
"""
