"""Files of users on shared storage: written whole or not at all, touched only as the user they belong to."""
