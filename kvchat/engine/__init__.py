"""What runs in the child process. Knows tokens and messages, not chats. Imported by nobody above it."""
