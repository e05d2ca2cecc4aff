# A worker, or with other arguments any command: docker run crawlproject monitor
FROM python:3.13-slim AS build
WORKDIR /src
COPY requirements.txt ./
RUN python -m venv /venv && /venv/bin/pip install --no-cache-dir -r requirements.txt
COPY pyproject.toml setup.py README.md ./
COPY crawlproject ./crawlproject
RUN /venv/bin/pip install --no-cache-dir --no-deps .

FROM python:3.13-slim
COPY --from=build /venv /venv
# /data holds thumbnails, where they do not go to S3. Nothing else is written.
RUN useradd --uid 10001 --no-create-home --home-dir /data crawl && install -d -o crawl -g crawl /data
ENV PATH=/venv/bin:$PATH \
    SCRAPY_SETTINGS_MODULE=crawlproject.settings \
    IMAGES_STORE=/data/thumbnails \
    CRAWL_LOG_FORMAT=json \
    PYTHONDONTWRITEBYTECODE=1
# Nothing that a worker could write to: Scrapy runs the scrapy.cfg of its folder, and Python the modules there.
WORKDIR /
VOLUME /data
USER 10001:10001
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s CMD ["python", "-P", "-m", "crawlproject.healthcheck"]
ENTRYPOINT ["scrapy"]
CMD ["crawl", "images"]
