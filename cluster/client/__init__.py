"""Kafka's classic clients on a Host: the consumer of a group, a producer, an administrator.

Reading order: `net` (connections, metadata, retries, the coordinator's discovery), `consumer`,
`record_work`, `producer`, `admin`; beside them `zookeeper_consumer` (Kafka's old consumer).
Callbacks handle the answers to requests, as in Kafka's client. Only a few coroutines wait for
answers: the application, the heartbeats, the lookup of a coordinator, an administrator's calls, and
the threads of `zookeeper_consumer`.
"""
