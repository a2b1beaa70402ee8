"""What waits for people: the inbox and notifications. What is asked, and of whom, is in the run's state. Begin with
`inbox`."""
