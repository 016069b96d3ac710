"""Chat completions of any service that speaks OpenAI's API."""
