"""Steps that several tables read; no run directory holds their results.

A step computes one DataFrame from others. A cut is a time in which a fault of the network separates
a node from others.

Reading order: `telling_rows` (the rows of a trace that tables read), `groups`, `lives` (deaths,
pauses, cuts), `exchanges` (requests and answers), `gaps` (times without an acknowledged commit,
without a processed record, without a coordinator), `repeats` (records processed again),
`zookeeper` (transactions and consumers).
"""
