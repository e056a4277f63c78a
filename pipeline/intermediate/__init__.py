"""Steps that several tables share, and that no reader sees.

Reading order: `telling_rows` (what of a trace tables read), `groups`, `lives` (deaths, pauses,
cuts), `exchanges` (requests and answers), `gaps` (without an acknowledged commit, without a
processed record), `repeats` (records processed again), `zookeeper` (transactions and consumers).
"""
