"""Routes for people who decide: pendings, the inbox, delegations, links in notifications, feedback."""
