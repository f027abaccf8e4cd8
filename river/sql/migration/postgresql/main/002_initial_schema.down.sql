-- Everything but the record of versions goes, all jobs included.
DROP TABLE {at}river_job;

DROP FUNCTION {at}river_job_notify();

DROP TYPE {at}river_job_state;

DROP TABLE {at}river_leader;
