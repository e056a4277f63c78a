"""The controller: who is alive, who leads what, and the log of metadata that says so.

A pure state machine (`core` and what it uses) and the node that puts it on a Host. It must not
know groups or what partitions hold. Reading order: `metadata_image` (what replaying the log gives),
`broker_liveness`, `broker_control` (registration, heartbeats, fencing), `election`,
`topic_creation`, `alter_partition`, `administration`, `quorum_state`, `core`, `node`.
"""
