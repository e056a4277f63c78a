"""The replicated log of one partition: batches, leader epochs, high watermark, ISR.

The classes are pure state machines, without clock and randomness, and do I/O only through Storage.
A broker has a `replica.Partition` for each of its replicas, over a `log.PartitionLog`.

Reading order: `storage`, `memory_storage`, `batches`, `log_validation` (the leader's checks of a
client's batch), `epochs`, `producer_states` (idempotent producers and transactions) and
`transaction_index` (transactions of a log), `log`, `segments`, `compaction`, `outcomes`,
`follower_state`, `in_sync_replicas` (ISR and high watermark of a leader), `fetching`, `replica`
(leader or follower of one partition), `traces`, `checkpoints`, `invariants`,
`invariants_between_replicas`, `invariants_of_cleaning` (segments and compaction).
"""
