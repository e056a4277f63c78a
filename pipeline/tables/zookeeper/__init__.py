"""The tables about ZooKeeper and the consumers on it, and the table of offsets that were set back.

The oldest consumers of Kafka have no coordinator, but share their partitions through ZooKeeper. The
report compares such groups with groups that have a coordinator.

Reading order: `sessions` (each client's lasting connection to ZooKeeper), `watches` (how a client
hears of changes), `attempts` (how it then tries to get its share of the partitions), `operations`
(how many requests this takes), `offset_rewinds` (commits that set a group's offset back).
"""
