package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
)

// rawArgs are args of a kind that only the command line knows.
type rawArgs struct {
	kind     string
	document json.RawMessage
}

func (args rawArgs) Kind() string { return args.kind }

func (args rawArgs) MarshalJSON() ([]byte, error) { return args.document, nil }

type job struct {
	ID    int64  `json:"id"`
	Kind  string `json:"kind"`
	State string `json:"state"`
}

// insert inserts one job, as a client that works none does, and answers with it.
func insert(flags *flag.FlagSet) func(context.Context) (any, error) {
	kind := flags.String("kind", "", "kind of the job")
	document := flags.String("args", "{}", "args of the job, a JSON object")
	schema := flags.String("schema", "", "schema; empty for the search path's first")
	return func(ctx context.Context) (any, error) {
		if !json.Valid([]byte(*document)) {
			return nil, fmt.Errorf("-args is not JSON: %s", *document)
		}
		return withPool(ctx, func(pool *pgxpool.Pool) (any, error) {
			client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: logger(), Schema: *schema})
			if err != nil {
				return nil, err
			}
			result, err := client.Insert(ctx, rawArgs{*kind, json.RawMessage(*document)}, nil)
			if err != nil {
				return nil, err
			}
			return job{result.Job.ID, result.Job.Kind, string(result.Job.State)}, nil
		})
	}
}
