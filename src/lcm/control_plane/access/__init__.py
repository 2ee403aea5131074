"""Who may do what: roles, tokens, sign-in by an identity provider, browser sessions, and what guards their doors."""
