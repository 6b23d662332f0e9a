# The service alone, without Spark: `docker build -t watersmeet .`, then `docker run -p 8080:8080 watersmeet`.
FROM python:3.11-slim AS build
WORKDIR /source
COPY pyproject.toml setup.py MANIFEST.in README.md LICENSE CHANGELOG.md ./
COPY app app
COPY models models
COPY solvers solvers
COPY spark_adapter spark_adapter
COPY openapi openapi
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.11-slim
RUN useradd --create-home --uid 10001 watersmeet
COPY constraints.txt /tmp/constraints.txt
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --constraint /tmp/constraints.txt /wheels/*.whl && rm -r /wheels
USER 10001
WORKDIR /home/watersmeet
# What the searches compile is kept where this user may write: numba passes over a folder that it cannot write to, and would compile anew at each start.
ENV PYTHONUNBUFFERED=1 NUMBA_CACHE_DIR=/home/watersmeet/compiled
RUN python -m solvers.jtree.warm
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8080/healthz', timeout=2)"]
ENTRYPOINT ["watersmeet"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8080"]
