"""Questions in chats, both ways: the contract of a platform (`contract`), the content of cards (`cards`), the platforms
that are known by name, and finding the one of a channel (`apps`)."""
