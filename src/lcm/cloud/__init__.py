"""Cloud providers for the instances of workers: one interface, and adapters for AWS and for a simulated EC2."""
