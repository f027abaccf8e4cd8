-- The record of applied versions, in its first form, which knows one line only. Version 5 gives it lines.
CREATE TABLE {at}river_migration (
  id bigserial NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  version bigint NOT NULL,
  CONSTRAINT river_migration_pkey PRIMARY KEY (id),
  CONSTRAINT version CHECK (version >= 1)
);

CREATE UNIQUE INDEX river_migration_version_idx
ON {at}river_migration (version);
