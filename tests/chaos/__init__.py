"""`hai-flow chaos`: its plan, its oracle, its report, and a campaign of twenty seconds (half a minute at night)."""
