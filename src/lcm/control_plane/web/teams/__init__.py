"""Pages about teams: who is in them, what they may use, and which lablets are theirs."""
