"""Programs of real Kafka clients, all with one command line, to run and to kill in a cluster.

A cluster of `coordlab up` serves them. Each program is a member of a group (`consume`) or a
producer of numbered records (`produce`). It writes each event to stdout, as a line with a JSON
object. There is one program for each client library; options and events are the same for all. To
end a program in order, send it SIGTERM: it closes its client. To make it crash, send it SIGKILL.

Reading order: `program` (command line, events, the loop of every Python client), `librdkafka`
(confluent-kafka), `kafka_python`; `java/LabClient.java` (kafka-clients). README.md has the
commands. Coordlab itself imports none of these modules.
"""
