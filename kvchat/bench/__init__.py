"""What `kvchat bench` measures, and how it tells it. Talks to an engine through its client, like everybody else."""
