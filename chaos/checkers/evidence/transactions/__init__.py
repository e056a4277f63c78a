"""Evidence on transactions: which are open, how they ended, and which commits Kafka forgets.

Reading order: `open_transactions`, `pending_offsets`, `transaction_ends`, `forgotten_commits`.
"""
