"""What the engine needs from the world: small protocols, each with its promises."""
