"""`groups`: Kafka's tool kafka-consumer-groups, for a running cluster or a moment of a replay.

Reading order: `command` (the subcommands and their options), `asked_cluster` (the cluster that
answers), `questions` (what each subcommand asks), `facts` (the answers as structs), `view` (prints
them). `rebalance_view` prints the rebalances for `--why`.
"""
