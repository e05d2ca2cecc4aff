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

variable "pages" {
  description = "Number of workers for pages. They keep no pages (CRAWL_PAGES_STORE): a task has no lasting disk for what waits to be uploaded."
  type        = number
  default     = 0

  validation {
    condition     = var.pages >= 0 && floor(var.pages) == var.pages
    error_message = "pages must be a whole number, 0 or more."
  }
}

variable "sizes" {
  description = "CPU (units, 1024 a core) and memory (MiB) of the tasks of a service, as in { worker = { cpu = 2048, memory = 4096 } }: combinations that Fargate has."
  type        = map(object({ cpu = number, memory = number }))
  default     = {}

  validation {
    condition     = length(setsubtract(keys(var.sizes), ["worker", "pages", "monitor", "events", "page-events"])) == 0
    error_message = "sizes has a service that there is not: expected worker, pages, monitor, events or page-events."
  }
}

variable "tags" {
  description = "Tags of everything that is created, and of the tasks."
  type        = map(string)
  default     = {}
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
  description = "Where the events go: s3://bucket/prefix/:parquet, which the task role may write to and list, or --kafka, with CRAWL_KAFKA_BROKERS in settings. A task has no lasting disk, so no file. A dataset leaves out the events of halts and pages; see page_events_to."
  type        = string

  validation {
    condition     = var.events_to == "--kafka" || can(regex("^s3://[^/]+/.*:(parquet|webdataset)$", var.events_to))
    error_message = "events_to must be s3://bucket/prefix/:parquet, s3://bucket/prefix/:webdataset or --kafka."
  }
}

variable "page_events_to" {
  description = "A second reader, for what events_to leaves out, beside which the crawl pauses once a million events wait unread: --kafka, or nothing."
  type        = string
  default     = ""

  validation {
    condition     = contains(["", "--kafka"], var.page_events_to)
    error_message = "page_events_to must be --kafka, or empty."
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
