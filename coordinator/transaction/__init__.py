"""The transaction coordinator: ids and epochs of producers, and how their transactions end.

Reading order: `states`, `metadata` (one transactional id), `turn`, `init_producer_id`,
`add_partitions`, `end_transaction`, `markers`, `load`, `transaction_coordinator` (the way in).
"""
