"""Kafka's vocabulary: ids, errors, messages, persisted records, and the schema of traces.

Reading order: `ids`, `errors`, `config`, `metadata_version`, `partitioner`, `topic_names`,
`messages`, `api` (one row per API), `envelope`, `plain` (messages as plain data), `records`
(records in logs), `compression`, `wire` (Kafka's fields by version), `answer_contract` (checks of
an answer against its request), `effects` (inputs and results of the cores), `causes`, `trace`,
`trace_schema` (columns and detail of each kind of trace row).
"""
