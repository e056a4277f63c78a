"""Kafka's bytes: the fields of messages and embedded values by version, as tables.

Reading order: `fields` (types and codec), `message_schemas`, `transaction_schemas`,
`consumer_protocol` (subscriptions and assignments inside JoinGroup and SyncGroup).
"""
