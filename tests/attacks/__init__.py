"""What attackers try, over real sockets: refused as said, nothing executed, nothing stored."""
