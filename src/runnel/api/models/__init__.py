"""What requests and answers hold, as OpenAPI describes it."""
