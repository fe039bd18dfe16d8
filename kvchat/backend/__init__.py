"""How the app reaches a model. Never imports `kvchat.engine` or llama_cpp."""
