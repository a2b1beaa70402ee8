"""Questions in chats, both ways: the contract of a platform (`contract`), what a card says (`cards`), the platforms
that are known by name, and finding the one of a channel (`apps`)."""
