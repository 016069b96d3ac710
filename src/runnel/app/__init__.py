"""Programs made of the parts: the composition root, the embedded engine, roles on servers."""
