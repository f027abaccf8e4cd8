-- Jobs, what tells the clients of a new one, and the lease of the client that leads.
CREATE TYPE {at}river_job_state AS ENUM (
  'available',
  'cancelled',
  'completed',
  'discarded',
  'retryable',
  'running',
  'scheduled'
);

-- A job that is not final has no time of its end. One that is final may lack it until version 4.
CREATE TABLE {at}river_job (
  id bigserial NOT NULL,
  state {at}river_job_state NOT NULL DEFAULT 'available',
  attempt smallint NOT NULL DEFAULT 0,
  max_attempts smallint NOT NULL,
  attempted_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(),
  finalized_at timestamptz,
  scheduled_at timestamptz NOT NULL DEFAULT now(),
  priority smallint NOT NULL DEFAULT 1,
  args jsonb,
  attempted_by text[],
  errors jsonb[],
  kind text NOT NULL,
  metadata jsonb NOT NULL DEFAULT '{}',
  queue text NOT NULL DEFAULT 'default',
  tags varchar(255)[],
  CONSTRAINT river_job_pkey PRIMARY KEY (id),
  CONSTRAINT finalized_or_finalized_at_null CHECK (
    (state IN ('cancelled', 'completed', 'discarded') AND finalized_at IS NOT NULL)
    OR finalized_at IS NULL
  ),
  CONSTRAINT kind_length CHECK (char_length(kind) > 0 AND char_length(kind) < 128),
  CONSTRAINT max_attempts_is_positive CHECK (max_attempts > 0),
  CONSTRAINT priority_in_range CHECK (priority BETWEEN 1 AND 4),
  CONSTRAINT queue_length CHECK (char_length(queue) > 0 AND char_length(queue) < 128)
);

CREATE INDEX river_job_args_index
ON {at}river_job USING gin (args);

CREATE INDEX river_job_kind
ON {at}river_job (kind);

CREATE INDEX river_job_metadata_index
ON {at}river_job USING gin (metadata);

-- In the order of a claim, so that one reads the head of a queue and no more.
CREATE INDEX river_job_prioritized_fetching_index
ON {at}river_job (state, queue, priority, scheduled_at, id);

-- For the removal of old jobs. Most jobs of a busy queue that are not final stay out of it.
CREATE INDEX river_job_state_and_finalized_at_index
ON {at}river_job (state, finalized_at)
WHERE finalized_at IS NOT NULL;

-- The channel has no schema in its name. Clients of this version and of version 3 listen to it, later ones do not.
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

-- UNLOGGED, because a lease is renewed every few seconds and worth nothing after a crash.
CREATE UNLOGGED TABLE {at}river_leader (
  elected_at timestamptz NOT NULL,
  expires_at timestamptz NOT NULL,
  leader_id text NOT NULL,
  name text NOT NULL,
  CONSTRAINT river_leader_pkey PRIMARY KEY (name),
  CONSTRAINT leader_id_length CHECK (char_length(leader_id) > 0 AND char_length(leader_id) < 128),
  CONSTRAINT name_length CHECK (char_length(name) > 0 AND char_length(name) < 128)
);
