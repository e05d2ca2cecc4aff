# A worker, or with other arguments any command: docker run crawlproject monitor
# By digest if you can: docker build --build-arg PYTHON=python@sha256:... (docs/deploy.md)
ARG PYTHON=python:3.13.9-slim-bookworm
FROM ${PYTHON} AS build
WORKDIR /src
COPY requirements.lock requirements-kafka.lock requirements-build.lock ./
# By hash, and nothing that would run code of its own to be installed
RUN python -m venv /venv && python -m venv /build \
    && /venv/bin/pip install --no-cache-dir --require-hashes --only-binary :all: -r requirements.lock -r requirements-kafka.lock \
    && /build/bin/pip install --no-cache-dir --require-hashes --only-binary :all: -r requirements-build.lock
COPY pyproject.toml setup.py README.md LICENSE ./
COPY crawlproject ./crawlproject
RUN /build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --no-index --wheel-dir /wheels . \
    && /venv/bin/pip install --no-cache-dir --no-deps --no-index /wheels/*.whl

FROM ${PYTHON}
COPY --from=build /venv /venv
# /data holds thumbnails, where they do not go to S3 (and pages and the overflow, if they are kept there). Nothing else
# is written but /tmp.
RUN useradd --uid 10001 --no-create-home --home-dir /data crawl && install -d -o crawl -g crawl /data
ENV PATH=/venv/bin:$PATH \
    SCRAPY_SETTINGS_MODULE=crawlproject.settings \
    IMAGES_STORE=/data/thumbnails \
    CRAWL_LOG_FORMAT=json \
    PYTHONDONTWRITEBYTECODE=1
# Nothing that a worker could write to: Scrapy runs the scrapy.cfg of its folder, and Python the modules there.
WORKDIR /
VOLUME ["/data", "/tmp"]
USER 10001:10001
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s CMD ["python", "-P", "-m", "crawlproject.healthcheck"]
ENTRYPOINT ["scrapy"]
CMD ["crawl", "images"]
