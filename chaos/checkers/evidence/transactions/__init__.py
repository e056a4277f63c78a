"""Evidence on transactions: which are open, how they ended, and which commits Kafka forgets.

Reading order: `open_transactions`, `transaction_ends`, `forgotten_commits`.
"""
