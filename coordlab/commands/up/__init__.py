"""`up`: a standing cluster, which runs in the foreground until it is ended.

Other commands send requests to the cluster from another terminal: inject, heal, status and down.

Reading order: `command` (options, one cluster), `hints` (the lines to paste).
"""
