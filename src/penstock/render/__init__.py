"""Pure functions from our data to text and manifests: same input, same bytes."""
