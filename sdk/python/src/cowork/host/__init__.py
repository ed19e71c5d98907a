"""What runs on the host, beside sessions."""
