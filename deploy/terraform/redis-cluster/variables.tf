variable "name" {
  description = "Prefix of the name of everything that is created."
  type        = string
  default     = "crawl"
}

variable "tags" {
  description = "Tags of everything that is created."
  type        = map(string)
  default     = {}
}

variable "node_type" {
  description = "ElastiCache node type, by the memory that docs/scale.md says the crawl takes."
  type        = string
  default     = "cache.r7g.large"
}

variable "masters" {
  description = "Number of masters. A crawl is on one of them, unless CRAWL_SHARDS divides it (docs/deploy.md)."
  type        = number
  default     = 1

  validation {
    condition     = var.masters >= 1 && floor(var.masters) == var.masters
    error_message = "masters must be a whole number, 1 or more."
  }
}

variable "replicas" {
  description = "Replicas of each master."
  type        = number
  default     = 1

  validation {
    condition     = contains([1, 2, 3, 4, 5], var.replicas)
    error_message = "replicas must be 1 to 5: without one nothing takes over from a master that fails."
  }
}

variable "password" {
  description = "AUTH token of Redis: 16 to 128 letters and digits, as it is part of a URL. It is kept in Terraform's state."
  type        = string
  sensitive   = true

  validation {
    condition     = can(regex("^[A-Za-z0-9]{16,128}$", var.password))
    error_message = "password must be 16 to 128 letters and digits."
  }
}

variable "subnet_ids" {
  description = "Subnets of the nodes, in two zones or more."
  type        = list(string)
}

variable "security_group_ids" {
  description = "Inbound: 6379 from the tasks of the crawl. Outbound: nothing."
  type        = list(string)
}
