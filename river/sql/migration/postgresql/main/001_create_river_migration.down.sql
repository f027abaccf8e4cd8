-- The end of the record. Nothing is left to delete this version's own row from.
DROP TABLE {at}river_migration;
