CREATE DATABASE mlflow;
\connect prefect
CREATE EXTENSION IF NOT EXISTS pg_trgm;
