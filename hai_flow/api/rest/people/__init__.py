"""Routes for people who decide: pendings, receipts, the inbox, delegations, links in notifications, feedback."""
