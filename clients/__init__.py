"""Real Kafka clients with one command line: programs to run, and to kill, in the lab's cluster.

Each program is a member of a group (`consume`) or a producer of numbered records (`produce`), and
writes its events as one JSON object a line; options and events are equal for all client families.
SIGTERM ends a program in order, SIGKILL is its crash.

Reading order: `program` (command line, events, the loop of every Python client), `librdkafka`
(confluent-kafka), `kafka_python`; `java/LabClient.java` (kafka-clients). README.md has the
commands. The lab itself imports none of these modules.
"""
