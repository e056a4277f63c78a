"""Producers.

Reading order: `producer_identity` (sequence numbers of an idempotent producer), `node` (appends
numbered records), `transactional_producer` (commits offsets).
"""
