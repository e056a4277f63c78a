"""Kafka's classic clients on a Host: the consumer of a group, a producer, an administrator.

Reading order: `net` (connections, metadata, retries, the coordinator's discovery), `consumer`,
`record_work`, `producer`, `admin`; beside them `zookeeper_consumer`, which reads as threads do.
Elsewhere answers are handled in callbacks, as Kafka's client handles them inside poll; only the
application, the heartbeats, a lookup and an administrator's calls wait.
"""
