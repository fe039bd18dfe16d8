"""The KV cache as an object, on disk and on paper. No llama.cpp."""
