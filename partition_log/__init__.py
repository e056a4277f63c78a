"""The replicated log of one partition: batches, leader epochs, high watermark, ISR.

The classes are pure state machines, without clock and randomness. I/O goes through Storage only. A
partition has several replicas; one is elected leader, the others copy its log. ISR stands for
in-sync replicas, as in Kafka: those that have kept up with the leader. The high watermark is the
offset below which every in-sync replica has the records.

Reading order: `storage`, `memory_storage`, `batches`, `log_validation` (the leader's checks of a
client's batch), `epochs`, `producer_states` (idempotent producers and transactions) and
`transaction_index` (transactions of a log), `log`, `segments`, `compaction`, `outcomes`,
`follower_state`, `in_sync_replicas` (ISR and high watermark of a leader), `fetching`, `replica`
(leader or follower of one partition), `traces`, `checkpoints`, `invariants`,
`invariants_between_replicas`, `invariants_of_cleaning` (segments and compaction).
"""
