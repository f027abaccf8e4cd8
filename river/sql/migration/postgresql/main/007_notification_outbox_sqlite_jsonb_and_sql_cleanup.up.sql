-- A table of notifications, which PostgreSQL has no use for as it has NOTIFY, but every database of this version has.
CREATE TABLE {at}river_notification (
  id bigserial NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  payload text NOT NULL,
  topic text NOT NULL,
  CONSTRAINT river_notification_pkey PRIMARY KEY (id),
  CONSTRAINT topic_length CHECK (length(topic) > 0 AND length(topic) < 128)
);

CREATE INDEX river_notification_created_at_idx
ON {at}river_notification (created_at);

CREATE INDEX river_notification_topic_id_idx
ON {at}river_notification (topic, id);

-- Nothing has ever used these two, so they may have been dropped as useless before.
DROP TABLE IF EXISTS {at}river_client_queue;

DROP TABLE IF EXISTS {at}river_client;

ALTER TABLE {at}river_job
  ALTER COLUMN max_attempts SET DEFAULT 25;

ALTER TABLE {at}river_queue
  ALTER COLUMN updated_at SET DEFAULT CURRENT_TIMESTAMP;
