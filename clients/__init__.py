"""Small programs with real Kafka clients, to run against a cluster of `coordlab up`, and to kill.

There is one program for each client library. Each can be a member of a group (`consume`) or a
producer (`produce`), takes the same options, and writes the same events to stdout:

    {"t": 1769860800.123, "event": "assigned", "client": "librdkafka", "name": "c-0",
     "partitions": [0, 1], "owned": [0, 1]}

After a SIGTERM a program closes its client and ends. A SIGKILL makes it crash.

Reading order: `program` (command line, events, the loop of every Python client), `librdkafka`
(confluent-kafka), `kafka_python`; `java/LabClient.java` (kafka-clients). README.md has the
commands. Coordlab itself imports none of these modules.
"""
