"""Hosts the transaction coordinator, and carries its decisions to the partitions' leaders.

Reading order: `transaction_coordination`, `transaction_tasks` (loads and unloads), `marker_sender`,
`txn_marker_writer`, `transaction_verifier`.
"""
