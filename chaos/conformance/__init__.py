"""Replays of real Kafka's recordings against this cluster in virtual time, and their comparison.

A transcript is one recorded scenario: requests, Kafka's answers, and actions on the cluster. "Ours"
means the brokers of this project, in contrast to real Kafka's.

Reading order: `transcript` (files), `recorded_cluster` and `client_machine` (brokers and clients of
a scenario), `actions` (steps that are no request), `replayer` (plays one transcript against our
brokers), `comparison` (our answers with Kafka's), `conformity` (all transcripts of a folder).
"""
