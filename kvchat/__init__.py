"""kvchat: a local chat for the terminal in which the KV cache is a first-class object."""

__version__ = "0.1.0"
