"""The subcommands of `retally`, one file each, imported when they are called."""
