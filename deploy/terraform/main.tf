# Workers for images and pages, a monitor and readers of the events on AWS Fargate. Redis, bucket, network and roles are yours.

terraform {
  required_version = ">= 1.5"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "~> 5.0"
    }
  }
}

locals {
  # The services, by name: how many tasks, which command, how large unless var.sizes says it.
  services = {
    worker = {
      count   = var.workers
      command = ["crawl", "images"]
      cpu     = 1024
      memory  = 2048
    }
    pages = {
      count   = var.pages
      command = ["crawl", "pages"]
      cpu     = 1024
      memory  = 2048
    }
    monitor = {
      count   = 1
      command = ["monitor"]
      cpu     = 256
      memory  = 512
    }
    events = { # reads them: beyond CRAWL_STREAM_MAXLEN unread ones the crawl pauses
      count   = 1
      command = ["events", "--follow", var.events_to]
      cpu     = 256
      memory  = 1024
    }
    page-events = {
      count   = var.page_events_to == "" ? 0 : 1
      command = ["events", "--follow", var.page_events_to]
      cpu     = 256
      memory  = 1024
    }
  }
  tasks = { for name, one in local.services : name => one if one.count > 0 || name == "worker" }
  settings = merge(var.settings, {
    CRAWL_CONTACT         = var.contact
    CRAWL_SOURCES         = var.sources
    IMAGES_STORE          = var.images_store
    CRAWL_METRICS_ADDRESS = "0.0.0.0"
  })
}

data "aws_region" "here" {}

resource "aws_cloudwatch_log_group" "crawl" {
  name              = "/crawl/${var.name}"
  retention_in_days = 30
  tags              = var.tags
}

resource "aws_ecs_task_definition" "crawl" {
  for_each = local.tasks

  family                   = "${var.name}-${each.key}"
  requires_compatibilities = ["FARGATE"]
  network_mode             = "awsvpc"
  cpu                      = try(var.sizes[each.key].cpu, each.value.cpu)
  memory                   = try(var.sizes[each.key].memory, each.value.memory)
  execution_role_arn       = var.execution_role_arn
  task_role_arn            = var.task_role_arn
  tags                     = var.tags

  # All that a task can write to; the image has it as a volume of its user's.
  volume {
    name = "tmp"
  }

  container_definitions = jsonencode([{
    name        = each.key
    image       = var.image
    command     = each.value.command
    essential   = true
    stopTimeout = 60 # CRAWL_SHUTDOWN_GRACE is 30

    user                   = "10001:10001"
    privileged             = false
    readonlyRootFilesystem = true
    linuxParameters        = { capabilities = { drop = ["ALL"] }, initProcessEnabled = true }
    mountPoints            = [{ sourceVolume = "tmp", containerPath = "/tmp", readOnly = false }]

    environment = [for name, value in local.settings : { name = name, value = value }]
    secrets     = [{ name = "REDIS_URL", valueFrom = var.redis_url_secret_arn }]
    ulimits     = [{ name = "nofile", softLimit = 8192, hardLimit = 8192 }]
    # No healthCheck: ECS would replace workers that only wait for Redis.
    logConfiguration = {
      logDriver = "awslogs"
      options = {
        awslogs-group         = aws_cloudwatch_log_group.crawl.name
        awslogs-region        = data.aws_region.here.name
        awslogs-stream-prefix = each.key
      }
    }
  }])
}

resource "aws_ecs_service" "crawl" {
  for_each = local.tasks

  name            = "${var.name}-${each.key}"
  cluster         = var.cluster_arn
  task_definition = aws_ecs_task_definition.crawl[each.key].arn
  desired_count   = each.value.count
  launch_type     = "FARGATE"
  tags            = var.tags
  propagate_tags  = "SERVICE" # to the tasks

  network_configuration {
    subnets         = var.subnet_ids
    security_groups = var.security_group_ids
  }

  lifecycle {
    precondition {
      condition     = var.pages == 0 || var.events_to == "--kafka" || var.page_events_to != ""
      error_message = "pages needs a reader of its events: set page_events_to, or events_to to --kafka."
    }
  }
}
