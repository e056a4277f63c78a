"""The controller: liveness of brokers, leadership of partitions, and the log that records them.

A pure state machine (`core` and the modules that it uses), and the node that runs it on a Host. It
must not know groups or the content of partitions. Reading order: `metadata_image` (the replayed
log), `decision` (records and an answer), `broker_liveness`, `broker_control` (registration,
heartbeats, fencing), `election`, `topic_creation`, `topic_deletion`, `alter_partition`,
`producer_ids`, `administration`, `metadata_fetches`, `quorum_state`, `invariants`, `core`,
`controller_metrics`, `node`.
"""
