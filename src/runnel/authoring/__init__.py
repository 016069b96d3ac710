"""How people write workflows, and what the code that they register is given."""
