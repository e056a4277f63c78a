"""A cluster that stays: a run with an open end, which others break, heal and end from outside.

Reading order: `definition` (an experiment from a file, from flags, or from both), `ports` (whether
its listeners can be opened), `messages` (requests and answers), `control` (the sockets between a
cluster and those who ask it), `registry` (which clusters are up, by name), `mailbox` (from the
sockets' threads to the run's loop), `claim` (a cluster's own end of the three), `ordered_faults`
(from an order to a fault of a plan), `guests` (groups that clients from outside join), `facts`
(what a query of the cluster shows), `run` (the run itself), `stand` (a run into its directory).
Nothing here knows the command line.
"""
