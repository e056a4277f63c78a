"""Checkers: observers of the trace that keep their own, simpler model of what Kafka promises.

Reading order: `base` (what a checker is), `story` (evidence for people); what several of them
follow: `coordinators`, `presence`, `faults_in_force`; then `fencing`, `durable_commits` (with
`commit_registers`), `generations`, `ownership`, `liveness`, `needless_rebalance`, `processing`
(with `intervals`); `registry` (all of them, fed together).
"""
