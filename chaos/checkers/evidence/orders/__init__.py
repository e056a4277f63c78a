"""Evidence on an administrator's orders: their effects in the rows of coordinators.

Reading order: `group_effects`.
"""
