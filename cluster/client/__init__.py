"""Kafka's classic clients: the consumer of a group, a producer, an administrator.

Reading order: `net` (connections, metadata, retries, the coordinator's discovery), `consumer`,
`record_work`, `producer`, `admin`; beside them `zookeeper_consumer` (Kafka's old consumer).
As in Kafka's client, most answers to requests are handled by callbacks. Only a few coroutines wait
for answers: the application, the heartbeats, the lookup of a coordinator, the calls of an
administrator, and what was a thread in Kafka's old consumer.
"""
