"""What keeps a deployment alive besides deciding and working: one duty a file, one loop each."""
