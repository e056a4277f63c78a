"""An administrator: changes and questions, repeated as Kafka's AdminClient repeats them.

Reading order: `admin_client` (Kafka's verbs), `outcomes` (what brokers answer, as values),
`admin_driver` (who is asked, and when again), `orders` (what a run asks and orders with it),
`offset_reset`.
"""
