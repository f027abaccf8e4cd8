-- A unique key that a job holds in chosen states only, and that many jobs can be inserted with at once.
-- The function, the column and the index may be there already, built while jobs were worked. An index whose
-- building failed enforces nothing, and would be taken for a good one below.
DO $$
BEGIN
  IF EXISTS (
    SELECT FROM pg_index
    JOIN pg_class ON pg_class.oid = indexrelid
    WHERE indrelid = CAST('{at}river_job' AS regclass)
      AND relname = 'river_job_unique_idx'
      AND NOT indisvalid
  ) THEN
    RAISE EXCEPTION USING
      ERRCODE = 'object_not_in_prerequisite_state',
      MESSAGE = 'index river_job_unique_idx is invalid, because a CREATE INDEX CONCURRENTLY has failed or'
        || ' has not ended; run DROP INDEX river_job_unique_idx and build it again, or leave it out';
  END IF;
END
$$;

-- The body needs no search path, as labels take the type of `state` and get_bit() is always found. get_bit() counts
-- from the left. `pending` is known by its place alone, because version 4 may have added it in this transaction, and
-- then it cannot be named yet.
CREATE OR REPLACE FUNCTION {at}river_job_state_in_bitmask(bitmask bit(8), state {at}river_job_state)
RETURNS boolean
LANGUAGE sql
IMMUTABLE
AS $$
  SELECT CASE
    WHEN state = 'available' THEN get_bit(bitmask, 7) = 1
    WHEN state = 'cancelled' THEN get_bit(bitmask, 6) = 1
    WHEN state = 'completed' THEN get_bit(bitmask, 5) = 1
    WHEN state = 'discarded' THEN get_bit(bitmask, 4) = 1
    WHEN state > 'discarded' AND state < 'retryable' THEN get_bit(bitmask, 3) = 1
    WHEN state = 'retryable' THEN get_bit(bitmask, 2) = 1
    WHEN state = 'running' THEN get_bit(bitmask, 1) = 1
    WHEN state = 'scheduled' THEN get_bit(bitmask, 0) = 1
    ELSE false
  END
$$;

ALTER TABLE {at}river_job
  ADD COLUMN IF NOT EXISTS unique_states bit(8);

CREATE UNIQUE INDEX IF NOT EXISTS river_job_unique_idx
ON {at}river_job (unique_key)
WHERE unique_key IS NOT NULL
  AND unique_states IS NOT NULL
  AND {at}river_job_state_in_bitmask(unique_states, state);

-- It would still refuse a key that the job before has given up. An operator may have dropped it already.
DROP INDEX IF EXISTS {at}river_job_kind_unique_key_idx;
