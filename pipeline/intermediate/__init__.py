"""Computations with Spark that several tables share. Their results are not written to a file.

Reading order:

- `telling_rows`: the rows of a trace that tables read;
- `groups`: which partition of `__consumer_offsets` stores which group;
- `lives`: when nodes died, were paused or cut off;
- `exchanges`: requests and answers;
- `gaps`: times without an acknowledged commit, without a processed record, without a coordinator;
- `repeats`: records processed again;
- `zookeeper`: transactions of ZooKeeper, and the consumers that use it.
"""
