"""The service: starts and supervises jobs, and answers from their tables, over HTTP."""
