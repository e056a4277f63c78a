"""`up`: a cluster that stays until it is ended, in the foreground.

Reading order: `command` (options, one cluster), `hints` (the lines to paste). `inject`, `heal`,
`status` and `down` ask it from another terminal.
"""
