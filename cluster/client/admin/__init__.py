"""An administrator's client: operations and queries, retried as Kafka's AdminClient does.

Reading order: `admin_client` (Kafka's operations), `outcomes` (answers of brokers as values),
`admin_driver` (choice of the broker, retries), `orders` (the operations that a run uses),
`offset_reset`.
"""
