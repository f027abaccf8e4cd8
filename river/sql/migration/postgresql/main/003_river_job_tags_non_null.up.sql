-- A job without tags has an empty array, so that a reader has one case less.
UPDATE {at}river_job
SET tags = '{}'
WHERE tags IS NULL;

ALTER TABLE {at}river_job
  ALTER COLUMN tags SET DEFAULT '{}',
  ALTER COLUMN tags SET NOT NULL;
