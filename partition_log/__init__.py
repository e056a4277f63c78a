"""The replicated log of one partition: batches, leader epochs, high watermark, ISR.

Pure state machines: no I/O but through Storage, no clock, no randomness. Reading order: `storage`,
`memory_storage`, `batches`, `epochs`, `producer_states` and `transaction_index` (transactions of a
log), `log`, `segments`, `compaction`, `outcomes`, `follower_state`, `in_sync_replicas` (a leader's
ISR and where its high watermark advances), `fetching`, `replica` (leader and follower of one
partition), `traces`, `checkpoints`, `invariants`.
"""
