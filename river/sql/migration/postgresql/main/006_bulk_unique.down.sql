-- A unique key is held in every state again, so one of a kind can stay. Dropping the index takes the lock that keeps
-- others from adding to them meanwhile.
DROP INDEX {at}river_job_unique_idx;

-- Jobs that ended have often given their key to a later one. The job that holds it keeps it, or else the newest.
UPDATE {at}river_job
SET unique_key = NULL
WHERE id IN (
  SELECT id
  FROM (
    SELECT id, row_number() OVER (
      PARTITION BY kind, unique_key
      ORDER BY (unique_states IS NOT NULL AND {at}river_job_state_in_bitmask(unique_states, state)) DESC, id DESC
    ) AS place
    FROM {at}river_job
    WHERE unique_key IS NOT NULL
  ) AS keyed
  WHERE place > 1
);

ALTER TABLE {at}river_job
  DROP COLUMN unique_states;

DROP FUNCTION {at}river_job_state_in_bitmask(bit, {at}river_job_state);

CREATE UNIQUE INDEX river_job_kind_unique_key_idx
ON {at}river_job (kind, unique_key)
WHERE unique_key IS NOT NULL;
