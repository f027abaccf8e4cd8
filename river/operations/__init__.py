"""What River does to the database, one module per noun, written once for every driver and colour."""
