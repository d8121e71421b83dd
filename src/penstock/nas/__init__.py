"""Users' files on shared storage: written atomically, touched only as the user who owns them."""
