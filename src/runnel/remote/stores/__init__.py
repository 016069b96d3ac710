"""A server's stores as the ports that commands look into: the same code reads them everywhere."""
