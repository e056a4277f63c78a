"""`groups`: Kafka's tool kafka-consumer-groups, for a running cluster or a moment of a replay.

Reading order: `command`, `asked_cluster` (the cluster that answers), `questions` (calls of an
administrator), `facts` (the answers as data), `view`; for `--why` the module `rebalance_view`, over
`pipeline.in_memory.rebalances`.
"""
