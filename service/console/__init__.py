"""The console: what people see of the service, page by page, rendered here."""
