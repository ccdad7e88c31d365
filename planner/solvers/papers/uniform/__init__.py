"""What planners that assume identical devices and servers share."""
