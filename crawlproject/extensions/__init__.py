"""What runs beside the flow in every worker."""
