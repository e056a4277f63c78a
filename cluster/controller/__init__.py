"""The controller: who is alive, who leads what, and the log of metadata that says so.

A pure state machine (`core` and what it uses) and the node that puts it on a Host. It must not
know groups or what partitions hold. Reading order: `metadata_image` (what replaying the log gives),
`decision` (records and an answer), `broker_liveness`, `broker_control` (registration, heartbeats,
fencing), `election`, `topic_creation`, `topic_deletion`, `alter_partition`, `producer_ids`,
`administration`, `metadata_fetches`, `quorum_state`, `invariants`, `core`, `controller_metrics`,
`node`.
"""
