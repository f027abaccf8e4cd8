-- Lines in the record of versions, unique keys, and tables of clients that version 7 takes away again.
-- The column of the key and its index may be there already, built while jobs were worked. An index whose building
-- failed enforces nothing, and would be taken for a good one below.
DO $$
BEGIN
  IF EXISTS (
    SELECT FROM pg_index
    JOIN pg_class ON pg_class.oid = indexrelid
    WHERE indrelid = CAST('{at}river_job' AS regclass)
      AND relname = 'river_job_kind_unique_key_idx'
      AND NOT indisvalid
  ) THEN
    RAISE EXCEPTION USING
      ERRCODE = 'object_not_in_prerequisite_state',
      MESSAGE = 'index river_job_kind_unique_key_idx is invalid, because a CREATE INDEX CONCURRENTLY has failed or'
        || ' has not ended; run DROP INDEX river_job_kind_unique_key_idx and build it again, or leave it out';
  END IF;
END
$$;

-- The table may be missing where another tool keeps the record. The new one gets its key last, when the old one
-- has given up the names of its indexes. River's own migrations have left the key with this name.
DO $$
BEGIN
  IF to_regclass('{at}river_migration') IS NULL THEN
    RETURN;
  END IF;
  ALTER TABLE {at}river_migration RENAME TO river_migration_without_line;
  CREATE TABLE {at}river_migration (
    line text NOT NULL,
    version bigint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT line_length CHECK (char_length(line) > 0 AND char_length(line) < 128),
    CONSTRAINT version_gte_1 CHECK (version >= 1)
  );
  INSERT INTO {at}river_migration (line, version, created_at)
  SELECT 'main', version, created_at
  FROM {at}river_migration_without_line
  ORDER BY version;
  DROP TABLE {at}river_migration_without_line;
  ALTER TABLE {at}river_migration
    ADD CONSTRAINT river_migration_pkey1 PRIMARY KEY (line, version);
END
$$;

ALTER TABLE {at}river_job
  ADD COLUMN IF NOT EXISTS unique_key bytea;

CREATE UNIQUE INDEX IF NOT EXISTS river_job_kind_unique_key_idx
ON {at}river_job (kind, unique_key)
WHERE unique_key IS NOT NULL;

CREATE UNLOGGED TABLE {at}river_client (
  id text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  metadata jsonb NOT NULL DEFAULT '{}',
  paused_at timestamptz,
  updated_at timestamptz NOT NULL,
  CONSTRAINT river_client_pkey PRIMARY KEY (id),
  CONSTRAINT name_length CHECK (char_length(id) > 0 AND char_length(id) < 128)
);

CREATE UNLOGGED TABLE {at}river_client_queue (
  river_client_id text NOT NULL,
  name text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  max_workers bigint NOT NULL DEFAULT 0,
  metadata jsonb NOT NULL DEFAULT '{}',
  num_jobs_completed bigint NOT NULL DEFAULT 0,
  num_jobs_running bigint NOT NULL DEFAULT 0,
  updated_at timestamptz NOT NULL,
  CONSTRAINT river_client_queue_pkey PRIMARY KEY (river_client_id, name),
  CONSTRAINT river_client_queue_river_client_id_fkey FOREIGN KEY (river_client_id)
    REFERENCES {at}river_client (id) ON DELETE CASCADE,
  CONSTRAINT name_length CHECK (char_length(name) > 0 AND char_length(name) < 128),
  CONSTRAINT num_jobs_completed_zero_or_positive CHECK (num_jobs_completed >= 0),
  CONSTRAINT num_jobs_running_zero_or_positive CHECK (num_jobs_running >= 0)
);
