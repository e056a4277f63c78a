"""Kafka's vocabulary: ids, errors, messages, persisted records, and the schema of traces.

Reading order: `ids`, `errors`, `config`, `metadata_version`, `partitioner`, `messages`, `api` (one
row per API), `envelope`, `plain` (messages as plain data), `records` (what logs persist),
`compression`, `wire` (Kafka's fields by version), `answer_contract` (what an answer owes its
request), `effects` (what a core asks its host for), `causes`, `trace`, `trace_schema` (what each
kind of row says).
"""
