"""Groups on ZooKeeper compared with groups that have a coordinator, on the comparison page.

In the older design, each member computes its partitions from data in ZooKeeper; in the newer one, a
coordinator on a broker distributes an assignment. A view is the set of members that a member read.

The section shows, from the tables of the runs: the waits and gaps of each group, the cost of each
change of its members, and the plan that each member computed from its view.

Reading order: `sides` (one group of one run, and its changes), `costs` (cost of one change),
`measured` (this cost on a real Kafka 1.1.1, and the formula for the reads), `felt_strips`,
`growth_chart` and `plan_lanes` (pictures), `answers` (differences between the designs), `section`.
"""
