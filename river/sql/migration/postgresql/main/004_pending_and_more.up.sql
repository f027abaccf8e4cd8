-- The state `pending`, args and metadata that are never null, queues as rows, and one lease for all.
-- Clients send their notifications themselves from here on.
DROP TRIGGER river_notify ON {at}river_job;

DROP FUNCTION {at}river_job_notify();

-- Before the next statement, which may replace the type that this constraint names. It comes back stricter.
ALTER TABLE {at}river_job
  DROP CONSTRAINT finalized_or_finalized_at_null;

-- A label that is added to a type cannot be used before it is committed, and before PostgreSQL 17 not even if the
-- type is as new. So a type that this transaction made is made again, whole, which costs nothing as its table is new
-- too. Any other gets the label, which is quick however many jobs there are. The way down leaves the label behind.
DO $$
DECLARE
  here bigint = CAST(CAST(pg_current_xact_id() AS text) AS bigint);
  made_here boolean;
BEGIN
  IF EXISTS (
    SELECT FROM pg_enum
    WHERE enumtypid = pg_typeof(CAST(NULL AS {at}river_job_state))
      AND enumlabel = 'pending'
  ) THEN
    RETURN;
  END IF;
  BEGIN
    -- Of a label that is seen, only this transaction and its savepoints can be in progress. It is a label that is
    -- asked, because a new owner or a grant would make the type's own row look new. Its id of 32 bits is counted
    -- from this transaction's, as functions take it in 64.
    SELECT pg_xact_status(
      CAST(CAST(here - (age(xmin) - age(CAST(pg_current_xact_id() AS xid))) AS text) AS xid8)
    ) = 'in progress'
    INTO STRICT made_here
    FROM pg_enum
    WHERE enumtypid = pg_typeof(CAST(NULL AS {at}river_job_state))
      AND enumlabel = 'available';
  EXCEPTION
    -- The id of a row that is older than two thousand million transactions looks like one of the future.
    WHEN invalid_parameter_value THEN
      made_here = false;
  END;
  IF made_here THEN
    ALTER TYPE {at}river_job_state RENAME TO river_job_state_without_pending;
    CREATE TYPE {at}river_job_state AS ENUM (
      'available',
      'cancelled',
      'completed',
      'discarded',
      'pending',
      'retryable',
      'running',
      'scheduled'
    );
    ALTER TABLE {at}river_job
      ALTER COLUMN state DROP DEFAULT,
      ALTER COLUMN state TYPE {at}river_job_state USING CAST(CAST(state AS text) AS {at}river_job_state),
      ALTER COLUMN state SET DEFAULT 'available';
    DROP TYPE {at}river_job_state_without_pending;
  ELSE
    ALTER TYPE {at}river_job_state ADD VALUE IF NOT EXISTS 'pending' AFTER 'discarded';
  END IF;
END
$$;

UPDATE {at}river_job
SET
  args = coalesce(args, '{}'),
  metadata = coalesce(metadata, '{}')
WHERE args IS NULL
  OR metadata IS NULL;

-- One statement, so that the table is read once. Final jobs have the time of their end, and no others do.
ALTER TABLE {at}river_job
  ALTER COLUMN args SET NOT NULL,
  ALTER COLUMN metadata SET DEFAULT '{}',
  ALTER COLUMN metadata SET NOT NULL,
  ADD CONSTRAINT finalized_or_finalized_at_null CHECK (
    (finalized_at IS NULL AND state NOT IN ('cancelled', 'completed', 'discarded'))
    OR (finalized_at IS NOT NULL AND state IN ('cancelled', 'completed', 'discarded'))
  );

CREATE TABLE {at}river_queue (
  name text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  metadata jsonb NOT NULL DEFAULT '{}',
  paused_at timestamptz,
  updated_at timestamptz NOT NULL,
  CONSTRAINT river_queue_pkey PRIMARY KEY (name)
);

-- A lease under another name would break the new rule. It is worth a few seconds, so nothing is lost with it.
DELETE FROM {at}river_leader
WHERE name <> 'default';

-- The primary key can have one value only, so that there is one leader at most.
ALTER TABLE {at}river_leader
  ALTER COLUMN name SET DEFAULT 'default',
  DROP CONSTRAINT name_length,
  ADD CONSTRAINT name_length CHECK (name = 'default');
