"""Documents of REST, of which the OpenAPI document and the client's types are made too."""
