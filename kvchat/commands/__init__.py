"""What the subcommands of `kvchat` do. Siblings of `kvchat.ui`: no widgets, the same conversation."""
