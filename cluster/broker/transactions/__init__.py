"""What a broker does around the transaction coordinator, which is a pure state machine.

Reading order: `transaction_coordination`, `transaction_tasks` (loads and unloads), `marker_sender`,
`txn_marker_writer`, `transaction_verifier`.
"""
