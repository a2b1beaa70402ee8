"""`hai-flow chaos`: its plan, its oracle, its report, and a campaign of half a minute."""
