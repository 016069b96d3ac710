"""Output for a person: tables, sentences, progress views and drawn graphs."""
