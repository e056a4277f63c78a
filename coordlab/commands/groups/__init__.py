"""`groups`: Kafka's tool kafka-consumer-groups, for a running cluster or a moment of a replay.

Reading order: `command`, `asked_cluster` (the cluster that answers), `questions` (calls of an
administrator), `facts` (the answers as data), `view`. For `--why` the module `rebalance_view`
prints the rebalances that `pipeline.in_memory.rebalances` collects.
"""
