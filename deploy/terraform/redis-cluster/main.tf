# A Redis Cluster on AWS ElastiCache (cluster mode), for a crawl with REDIS_URL=rediss+cluster://... The network is yours.

terraform {
  required_version = ">= 1.5"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "~> 5.0"
    }
  }
}

resource "aws_elasticache_parameter_group" "redis" {
  name   = "${var.name}-redis"
  family = "redis7"
  tags   = var.tags

  parameter {
    name  = "cluster-enabled"
    value = "yes"
  }
  # A shard without a master is no reason to refuse the others.
  parameter {
    name  = "cluster-require-full-coverage"
    value = "no"
  }
  # The whole state of the crawl: nothing may be evicted.
  parameter {
    name  = "maxmemory-policy"
    value = "noeviction"
  }
}

resource "aws_elasticache_subnet_group" "redis" {
  name       = "${var.name}-redis"
  subnet_ids = var.subnet_ids
  tags       = var.tags
}

resource "aws_elasticache_replication_group" "redis" {
  replication_group_id = "${var.name}-redis"
  description          = "The frontier of ${var.name}"
  tags                 = var.tags

  engine                     = "redis"
  engine_version             = "7.1"
  node_type                  = var.node_type
  parameter_group_name       = aws_elasticache_parameter_group.redis.name
  num_node_groups            = var.masters
  replicas_per_node_group    = var.replicas
  automatic_failover_enabled = true
  multi_az_enabled           = true

  subnet_group_name  = aws_elasticache_subnet_group.redis.name
  security_group_ids = var.security_group_ids

  transit_encryption_enabled = true
  at_rest_encryption_enabled = true
  auth_token                 = var.password
  auth_token_update_strategy = "SET"

  # ElastiCache keeps no append-only file: of a master and replicas that are all lost, the last snapshot is left.
  snapshot_retention_limit   = 7
  auto_minor_version_upgrade = false
  final_snapshot_identifier  = "${var.name}-redis-final"
}
