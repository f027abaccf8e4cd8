// Command river-interop lets the Python tests ask the real River what it does.
//
//	river-interop COMMAND [FLAGS]
//
// The database is the one of the environment variable DATABASE_URL. A command that succeeds writes one JSON
// document to standard output and exits with 0. One that fails writes its error to standard error and exits
// with 1; a command line that makes no sense exits with 2.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

const (
	exitFailed = 1
	exitUsage  = 2
)

// A command declares its flags and returns what runs once they are parsed. The result becomes the document.
type command func(flags *flag.FlagSet) func(ctx context.Context) (any, error)

var commands = map[string]command{
	"applied":  applied,
	"insert":   insert,
	"migrate":  migrate,
	"validate": validate,
	"versions": versions,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, arguments []string, out, errs io.Writer) int {
	action, err := parse(arguments, errs)
	if err != nil {
		fmt.Fprintln(errs, err)
		return exitUsage
	}
	result, err := action(ctx)
	if err == nil {
		err = json.NewEncoder(out).Encode(result)
	}
	if err != nil {
		fmt.Fprintln(errs, err)
		return exitFailed
	}
	return 0
}

func parse(arguments []string, errs io.Writer) (func(ctx context.Context) (any, error), error) {
	if len(arguments) == 0 {
		return nil, errors.New("no command was named; there are: " + known())
	}
	declare, ok := commands[arguments[0]]
	if !ok {
		return nil, fmt.Errorf("no command %q; there are: %s", arguments[0], known())
	}
	flags := flag.NewFlagSet(arguments[0], flag.ContinueOnError)
	flags.SetOutput(errs)
	action := declare(flags)
	if err := flags.Parse(arguments[1:]); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("%s takes flags only, not %q", arguments[0], flags.Args())
	}
	return action, nil
}

func known() string {
	return strings.Join(slices.Sorted(maps.Keys(commands)), ", ")
}
