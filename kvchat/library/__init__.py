"""Model files: where they are and what they say of themselves."""
