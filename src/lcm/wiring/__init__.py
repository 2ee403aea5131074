"""Making processes out of settings: the one place where adapters are chosen and parts are put together."""
