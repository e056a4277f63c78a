"""`up`: a cluster that stays until it is ended, in the foreground.

Other commands ask it from another terminal: inject, heal, status and down.

Reading order: `command` (options, one cluster), `hints` (the lines to paste).
"""
