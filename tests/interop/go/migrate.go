package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

type version struct {
	Version int    `json:"version"`
	Name    string `json:"name"`
}

type step struct {
	version
	Seconds float64 `json:"seconds"`
}

type validation struct {
	OK       bool     `json:"ok"`
	Messages []string `json:"messages"`
}

type migrator = rivermigrate.Migrator[pgx.Tx]

// withMigrator declares the flags that every command about migrations has.
func withMigrator(flags *flag.FlagSet, use func(context.Context, *migrator) (any, error)) func(context.Context) (any, error) {
	line := flags.String("line", "main", "line of migrations")
	schema := flags.String("schema", "", "schema; empty for the search path's first")
	return func(ctx context.Context) (any, error) {
		return withPool(ctx, func(pool *pgxpool.Pool) (any, error) {
			config := &rivermigrate.Config{Line: *line, Logger: logger(), Schema: *schema}
			migrator, err := rivermigrate.New(riverpgxv5.New(pool), config)
			if err != nil {
				return nil, err
			}
			return use(ctx, migrator)
		})
	}
}

// migrate answers with the steps that it made, in their order.
func migrate(flags *flag.FlagSet) func(context.Context) (any, error) {
	direction := flags.String("direction", "", "up or down")
	steps := flags.Int("steps", 0, "most steps; 0 for River's own default")
	target := flags.Int("target", 0, "version that is the last afterwards; -1 for none, 0 for River's own default")
	return withMigrator(flags, func(ctx context.Context, migrator *migrator) (any, error) {
		way := rivermigrate.Direction(*direction)
		if way != rivermigrate.DirectionUp && way != rivermigrate.DirectionDown {
			return nil, fmt.Errorf("-direction is up or down, not %q", *direction)
		}
		opts := &rivermigrate.MigrateOpts{MaxSteps: *steps, TargetVersion: *target}
		result, err := migrator.Migrate(ctx, way, opts)
		if err != nil {
			return nil, err
		}
		made := make([]step, len(result.Versions))
		for i, of := range result.Versions {
			made[i] = step{version{of.Version, of.Name}, of.Duration.Round(time.Microsecond).Seconds()}
		}
		return made, nil
	})
}

// validate answers whether all versions are applied, or all up to a target.
func validate(flags *flag.FlagSet) func(context.Context) (any, error) {
	target := flags.Int("target", 0, "last version to ask for; 0 for the newest")
	return withMigrator(flags, func(ctx context.Context, migrator *migrator) (any, error) {
		result, err := migrator.Validate(ctx, &rivermigrate.ValidateOpts{TargetVersion: *target})
		if err != nil {
			return nil, err
		}
		return validation{result.OK, append([]string{}, result.Messages...)}, nil
	})
}

// applied answers with the versions that are recorded.
func applied(flags *flag.FlagSet) func(context.Context) (any, error) {
	return withMigrator(flags, func(ctx context.Context, migrator *migrator) (any, error) {
		existing, err := migrator.ExistingVersions(ctx)
		if err != nil {
			return nil, err
		}
		return described(existing), nil
	})
}

// versions answers with all versions that River knows.
func versions(flags *flag.FlagSet) func(context.Context) (any, error) {
	return withMigrator(flags, func(_ context.Context, migrator *migrator) (any, error) {
		return described(migrator.AllVersions()), nil
	})
}

func described(migrations []rivermigrate.Migration) []version {
	list := make([]version, len(migrations))
	for i, migration := range migrations {
		list[i] = version{migration.Version, migration.Name}
	}
	return list
}
