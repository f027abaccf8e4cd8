"""River's revisions for Alembic: the branch ``river``, which a host adds to its ``version_locations``."""
