"""Checkers: observers of the trace that keep their own, simpler model of what Kafka promises.

Reading order: `base` (what a checker is), `story` (evidence for people), `fencing`,
`durable_commits`, `liveness`, `needless_rebalance`, `registry` (all of them, fed together).
"""
