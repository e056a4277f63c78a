"""Programs of real Kafka clients, which a user runs, and kills, beside a cluster of `coordlab up`.

There is one program for each client library. All have the same options. A program is a member of a
group (`consume`) or a producer of numbered records (`produce`). It writes the same events as the
others to stdout, each as a line with a JSON object. After SIGTERM a program closes its client and
ends. To make it crash, send it SIGKILL.

Reading order: `program` (command line, events, the loop of every Python client), `librdkafka`
(confluent-kafka), `kafka_python`; `java/LabClient.java` (kafka-clients). README.md has the
commands. Coordlab itself imports none of these modules.
"""
