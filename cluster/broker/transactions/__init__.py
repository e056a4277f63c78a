"""Host of the transaction coordinator; markers and verifications between brokers.

Reading order: `transaction_coordination`, `transaction_tasks` (loads and unloads), `marker_sender`,
`txn_marker_writer`, `transaction_verifier`.
"""
