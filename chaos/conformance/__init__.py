"""Recordings of real Kafka, replayed against this cluster in virtual time and compared.

Reading order: `transcript` (files), `recorded_cluster` and `client_machine` (the two sides),
`actions` (steps that are no request), `replayer` (one transcript against our brokers), `comparison`
(what was answered against what Kafka answered), `conformity` (all of a folder).
"""
