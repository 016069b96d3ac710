"""The pure core: given a state and a command it says what happens, and does nothing itself."""
