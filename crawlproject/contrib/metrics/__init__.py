"""What Prometheus sees: /metrics of `scrapy monitor`, and of each worker that has a port."""
