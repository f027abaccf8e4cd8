package main

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"
)

const urlVariable = "DATABASE_URL"

// withPool opens a pool of connections to the database, and closes it when use is done.
func withPool(ctx context.Context, use func(pool *pgxpool.Pool) (any, error)) (any, error) {
	url := os.Getenv(urlVariable)
	if url == "" {
		// Without this, pgx would take whatever database the PG* variables name.
		return nil, errors.New(urlVariable + " is not set")
	}
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	return use(pool)
}

// logger writes to standard error, because standard output is for the result alone.
func logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}
