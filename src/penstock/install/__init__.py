"""A site file meets a live site: what is to be installed, installing it, checking it, taking it back."""
