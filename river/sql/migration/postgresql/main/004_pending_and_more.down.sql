-- Back to version 3, but for the label `pending`, as a type cannot lose one. Jobs in that state keep it, and wait.
ALTER TABLE {at}river_leader
  ALTER COLUMN name DROP DEFAULT,
  DROP CONSTRAINT name_length,
  ADD CONSTRAINT name_length CHECK (char_length(name) > 0 AND char_length(name) < 128);

DROP TABLE {at}river_queue;

ALTER TABLE {at}river_job
  ALTER COLUMN args DROP NOT NULL,
  ALTER COLUMN metadata DROP NOT NULL,
  ALTER COLUMN metadata DROP DEFAULT,
  DROP CONSTRAINT finalized_or_finalized_at_null,
  ADD CONSTRAINT finalized_or_finalized_at_null CHECK (
    (state IN ('cancelled', 'completed', 'discarded') AND finalized_at IS NOT NULL)
    OR finalized_at IS NULL
  );

-- Clients of version 3 send no notifications themselves.
CREATE FUNCTION {at}river_job_notify()
RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
  PERFORM pg_notify('river_insert', CAST(json_build_object('queue', NEW.queue) AS text))
  WHERE NEW.state = 'available';
  RETURN NEW;
END
$$;

CREATE TRIGGER river_notify
AFTER INSERT ON {at}river_job
FOR EACH ROW
EXECUTE FUNCTION {at}river_job_notify();
