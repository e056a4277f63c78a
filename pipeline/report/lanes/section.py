"""The two sections that the lanes form: the time line, and what was said around each fault."""
