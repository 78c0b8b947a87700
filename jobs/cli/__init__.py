"""The command `retally`: arguments in, lines out; `commands` has one file per subcommand."""
