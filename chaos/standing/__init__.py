"""Standing clusters: runs without a planned end, controlled by commands of other processes.

Reading order: `definition` (an experiment from a file, from flags, or from both), `ports` (checks
that a cluster's listeners can be opened), `messages` (requests and answers of commands), `control`
(sockets between a cluster and commands), `registry` (running clusters by name), `mailbox` (passes
requests from the sockets' threads to the run's loop), `claim` (a cluster's registration, socket and
mailbox together), `ordered_faults` (makes faults of orders), `guests` (groups with clients from
outside), `facts` (results of a status query), `run` (the run itself), `stand` (plays a run into its
directory). No module here knows the command line.
"""
