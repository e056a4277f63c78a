"""Replays of real Kafka's recordings against this cluster in virtual time, and their comparison.

A transcript is one recorded scenario: requests, Kafka's answers, and acts on the cluster.
Reading order: `transcript` (files), `recorded_cluster` and `client_machine` (the two sides),
`actions` (steps that are no request), `replayer` (one transcript against our brokers), `comparison`
(our answers against Kafka's), `conformity` (all transcripts of a folder).
"""
