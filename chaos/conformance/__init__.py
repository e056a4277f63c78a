"""Replays of real Kafka's recordings against this cluster in virtual time, and their comparison.

A transcript is a scenario that was recorded with a real Kafka cluster: requests, Kafka's answers,
and actions such as the death of a broker. The same requests are sent to the brokers of this project
("ours"), and their answers should be the same.

Reading order: `transcript` (files), `recorded_cluster` and `client_machine` (brokers and clients of
a scenario), `actions` (steps that are no request), `replayer` (plays one transcript against our
brokers), `comparison` (our answers with Kafka's), `conformity` (all transcripts of a folder).
"""
