output "redis_url" {
  description = "REDIS_URL of workers and monitor, with the password: put it into the secret whose ARN the crawl is given."
  value       = "rediss+cluster://:${var.password}@${aws_elasticache_replication_group.redis.configuration_endpoint_address}:6379"
  sensitive   = true
}
