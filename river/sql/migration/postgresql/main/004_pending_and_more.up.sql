-- The state `pending`, args and metadata that are never null, queues as rows, and one lease for all.
-- Clients send their notifications themselves from here on.
DROP TRIGGER river_notify ON {at}river_job;

DROP FUNCTION {at}river_job_notify();

-- Quick, however many jobs there are. The label cannot be used before it is committed, so nothing in the later versions
-- names it, and they may run in the same transaction. The way down leaves it behind.
ALTER TYPE {at}river_job_state
  ADD VALUE IF NOT EXISTS 'pending' AFTER 'discarded';

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
  DROP CONSTRAINT finalized_or_finalized_at_null,
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
