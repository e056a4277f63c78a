"""Programs of real Kafka clients, all with one command line, to run and to kill in a cluster.

Each program is a member of a group (`consume`) or a producer of numbered records (`produce`). It
writes each event as a line with a JSON object. Options and events are equal for all client families
(a family is one client library). After SIGTERM a program closes its client and ends; SIGKILL is its
crash.

Reading order: `program` (command line, events, the loop of every Python client), `librdkafka`
(confluent-kafka), `kafka_python`; `java/LabClient.java` (kafka-clients). README.md has the
commands. Coordlab itself imports none of these modules.
"""
