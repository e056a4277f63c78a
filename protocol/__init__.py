"""Kafka's vocabulary: ids, errors, messages, persisted records, and the schema of traces.

Reading order: `ids`, `errors`, `config`, `messages`, `api` (one row per API), `envelope`, `records`
(what logs persist), `wire` (Kafka's fields by version), `effects` (what a core asks its host for),
`trace`.
"""
