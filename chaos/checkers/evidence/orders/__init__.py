"""Evidence on an administrator's orders: their effects in the rows of coordinators and controllers.

Reading order: `group_effects`, `topic_creations`.
"""
