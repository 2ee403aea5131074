"""`python -m lcm` is `lcm`."""

from lcm.cli.main import main

main()
