output "services" {
  description = "The ECS services, by what they run."
  value       = { for name, service in aws_ecs_service.crawl : name => service.name }
}

output "log_group" {
  description = "Where the logs are, a JSON object a line."
  value       = aws_cloudwatch_log_group.crawl.name
}
