"""The subcommands of `retally`, one file each, loaded when they are asked for."""
