-- Back to one line, which is impossible while another has versions, as nothing could say any more that they are
-- there. The lock comes first, so that no line can be added between the question and the rebuild.
DO $$
DECLARE
  others text;
BEGIN
  IF to_regclass('{at}river_migration') IS NULL THEN
    RETURN;
  END IF;
  LOCK TABLE {at}river_migration IN ACCESS EXCLUSIVE MODE;
  SELECT string_agg(DISTINCT line, ', ' ORDER BY line)
  INTO others
  FROM {at}river_migration
  WHERE line <> 'main';
  IF others IS NOT NULL THEN
    RAISE EXCEPTION USING
      ERRCODE = 'raise_exception',
      MESSAGE = 'version 5 cannot be taken back while river_migration has other lines than main (' || others
        || '); migrate those lines down first';
  END IF;
END
$$;

-- The key comes last here too, when its name is free whatever the other table's was called.
DO $$
BEGIN
  IF to_regclass('{at}river_migration') IS NULL THEN
    RETURN;
  END IF;
  ALTER TABLE {at}river_migration RENAME TO river_migration_with_line;
  CREATE TABLE {at}river_migration (
    id bigserial NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    version bigint NOT NULL,
    CONSTRAINT version CHECK (version >= 1)
  );
  INSERT INTO {at}river_migration (created_at, version)
  SELECT created_at, version
  FROM {at}river_migration_with_line
  ORDER BY version;
  DROP TABLE {at}river_migration_with_line;
  ALTER TABLE {at}river_migration
    ADD CONSTRAINT river_migration_pkey PRIMARY KEY (id);
  CREATE UNIQUE INDEX river_migration_version_idx
  ON {at}river_migration (version);
END
$$;

-- Its index goes with it.
ALTER TABLE {at}river_job
  DROP COLUMN unique_key;

DROP TABLE IF EXISTS {at}river_client_queue;

DROP TABLE IF EXISTS {at}river_client;
