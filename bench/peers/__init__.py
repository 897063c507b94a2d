"""What the hub is measured against."""
