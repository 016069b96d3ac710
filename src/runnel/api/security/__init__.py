"""Access control of the HTTP API: hosts, tokens, scopes, rate limits and body limits."""
