-- Tags may be missing again. Those that were filled in stay.
ALTER TABLE {at}river_job
  ALTER COLUMN tags DROP NOT NULL,
  ALTER COLUMN tags DROP DEFAULT;
