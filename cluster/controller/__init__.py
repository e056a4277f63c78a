"""The controller: liveness of brokers, leadership of partitions, and the log that records them.

The package has a pure state machine, and the node that runs it on a Host. The state machine is
`core` with the modules that it uses. It must not know groups or the content of partitions.

Reading order:
1. `metadata_image` is the state that results from the log. A `decision` has records and an answer.
2. `broker_liveness` and `broker_control` handle registrations, heartbeats and fencing. `election`
   chooses leaders.
3. `topic_creation`, `topic_deletion`, `alter_partition`, `producer_ids` and `administration` decide
   on one request each.
4. `metadata_fetches` answers the Fetches of brokers. `quorum_state` stores the controller's epoch.
5. `core` puts all together. `invariants` checks its state.
6. `node` runs the core on a Host. `controller_metrics` has the metrics.
"""
