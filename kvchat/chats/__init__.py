"""Conversations: frozen types and the store that keeps them. Knows nothing of models or widgets."""
