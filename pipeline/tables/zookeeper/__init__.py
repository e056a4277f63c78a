"""The tables about consumers that use ZooKeeper, and the table of offsets that were set back.

The oldest consumers of Kafka have no coordinator. They share their partitions through ZooKeeper
(below, these are called consumers on ZooKeeper). The report compares such groups with groups that
have a coordinator.

Reading order:

- `sessions`: each client's lasting connection to ZooKeeper;
- `watches`: how a client hears of changes;
- `attempts`: how a client then tries to get its share of the partitions;
- `operations`: how many requests a client sends for all this;
- `offset_rewinds`: commits that set a group's offset back.
"""
