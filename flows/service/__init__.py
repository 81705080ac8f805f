"""What runs by itself: the webhook receiver, its inbox, the warm worker and the schedule."""
