"""Conformance: recordings of real Kafka are replayed against our brokers, and the answers compared.

A transcript is the recording of a scenario with a real Kafka cluster. It has requests, Kafka's
answers, and actions such as the death of a broker. The same requests are sent to the brokers of
this project ("ours") in virtual time. Our answers should be equal to Kafka's.

Reading order: `transcript` (reads files), `recorded_cluster` and `client_machine` (the brokers and
the clients of a scenario), `actions` (steps that are no requests), `replayer` (plays one transcript
against our brokers), `comparison` (compares our answers with Kafka's), `conformity` (the result of
all transcripts of a folder).
"""
