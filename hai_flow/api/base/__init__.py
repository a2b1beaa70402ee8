"""What the packages of this one have in common and that knows none of them: patterns of ids, addresses of peers."""
