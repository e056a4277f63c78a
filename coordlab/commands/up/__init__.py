"""`up`: starts a cluster that stays until the user ends it.

Reading order: `command` (the options, and what the command does), `hints` (the commands that it
prints for the user to paste).
"""
