"""Whether files hold what a config says, and whether two hold the same."""
