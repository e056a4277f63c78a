"""Kafka's encoding: the fields of messages, and of values inside them, by version, as tables.

Reading order: `fields` (types), `message_schemas`, `transaction_schemas`, `listener_schemas`,
`listener_versions` (what brokers offer to Kafka clients), `consumer_protocol` (subscriptions
and assignments inside JoinGroup and SyncGroup).
"""
