variable "name" {
  description = "Prefix of the name of everything that is created."
  type        = string
  default     = "crawl"
}

variable "image" {
  description = "The image built from the Dockerfile, in a registry: by digest (registry/name@sha256:...), so that it stays the same."
  type        = string
}

variable "workers" {
  description = "Number of workers. More never exceed a source's rate."
  type        = number
  default     = 2

  validation {
    condition     = var.workers >= 0 && floor(var.workers) == var.workers
    error_message = "workers must be a whole number, 0 or more."
  }
}

variable "contact" {
  description = "CRAWL_CONTACT: a URL or mailto by which sites can reach you."
  type        = string
}

variable "sources" {
  description = "CRAWL_SOURCES: the URL of the catalogue."
  type        = string
}

variable "images_store" {
  description = "IMAGES_STORE: s3://bucket/prefix/, which the task role may write to."
  type        = string
}

variable "events_to" {
  description = "Where the events go: s3://bucket/prefix/:parquet, which the task role may write to and list, or --kafka, with CRAWL_KAFKA_BROKERS in settings. A task has no lasting disk, so no file. A dataset leaves out the events of pages and of halts: read these by --kafka, or the crawl pauses once a million of them wait."
  type        = string

  validation {
    condition     = var.events_to == "--kafka" || can(regex("^s3://[^/]+/.*:(parquet|webdataset)$", var.events_to))
    error_message = "events_to must be s3://bucket/prefix/:parquet, s3://bucket/prefix/:webdataset or --kafka."
  }
}

variable "settings" {
  description = "Further settings, by name; no secrets."
  type        = map(string)
  default     = {}
}

variable "redis_url_secret_arn" {
  description = "Secret (Secrets Manager or SSM) that holds REDIS_URL, with Redis' password (rediss://:password@...); the execution role may read it."
  type        = string
}

variable "cluster_arn" {
  description = "The ECS cluster."
  type        = string
}

variable "subnet_ids" {
  description = "Subnets with a way to the internet and to Redis."
  type        = list(string)
}

variable "security_group_ids" {
  description = "Outbound: everything that is crawled, and Redis. Inbound: 9410 where Prometheus scrapes the monitor."
  type        = list(string)
}

variable "execution_role_arn" {
  description = "Role that starts tasks: pulls the image, reads the secret, writes logs."
  type        = string
}

variable "task_role_arn" {
  description = "Role of the tasks: puts and gets objects in the bucket; for CRAWL_OVERFLOW_STORE lists and deletes them, too."
  type        = string
}
