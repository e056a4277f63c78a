"""The transaction coordinator: ids and epochs of producers, and the ends of their transactions.

Reading order: `states`, `metadata` (one transactional id), `effects`, `transaction_turn` (handling
of one input), `versions` (errors by version), `producer_ids`, `init_producer_id`,
`add_partitions`, `end_transaction`, `markers`, `load`, `expiration` (unused transactional ids),
`invariants`, `transaction_coordinator` (the facade).
"""
