"""For tests of Runnel, of its backends, and of the workflows that use it."""
