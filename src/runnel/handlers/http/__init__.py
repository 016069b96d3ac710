"""HTTP requests of workflows: bounded, classified, and only to where the operator lets them go."""
