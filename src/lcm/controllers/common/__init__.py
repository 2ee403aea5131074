"""What all controllers share: the base class, the admin API, status reports and CML accounts."""
