"""Who may do what: tokens, sessions, and the audit log of changes."""
