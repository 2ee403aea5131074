"""The planner of lablets. The scheduler, the fleet's plan and the preview of a lablet all use it."""
