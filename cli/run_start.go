package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/store"
)

// startArgs returns the arguments for the store's start command that the flag --start gives.
func (f *runFlags) startArgs() (args []string) {
	for flag := range strings.FieldsSeq(f.start) {
		args = append(args, "--"+strings.TrimLeft(flag, "-"))
	}
	return args
}

// checkStart reports a flag of --start that the store's start command does not have.
func (f *runFlags) checkStart(desc *store.Store) error {
	switch _, _, err := startCommand(desc, f.startArgs()); {
	case f.start == "":
		return nil
	case f.noLoad:
		return errors.New("--start is for a store that the run starts, and --no-load for one that has its keys: use one of them")
	case err != nil:
		return fmt.Errorf("--start %.60q: %w; see `rdmalab %s start --help`", f.start, err, desc.Name)
	}
	return nil
}

// startCommand parses arguments of the store's start command. It returns the command, which is to be
// called once, and its flags.
func startCommand(desc *store.Store, args []string) (func(*store.Call) (store.Result, error), *pflag.FlagSet, error) {
	fs := pflag.NewFlagSet(desc.Name, pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	start := desc.Commands.Start.New(fs)
	return start, fs, fs.Parse(args)
}

// startStore starts the store by its start command, with the flags of --start. Flags that are not
// given get the values that the run needs. If fresh is true, the store is made empty even if the
// memory holds one.
func (f *runFlags) startStore(call *store.Call, fresh bool) error {
	args := f.startArgs()
	_, fs, err := startCommand(call.Store, args)
	if err != nil {
		return err
	}
	if fresh && fs.Lookup("fresh") != nil {
		args = append(args, "--fresh")
	}
	if v := fs.Lookup("value"); v != nil && !v.Changed {
		args = append(args, fmt.Sprintf("--value=%d", f.config.Value))
	}
	start, _, err := startCommand(call.Store, slices.Clip(args))
	if err == nil {
		_, err = start(call)
	}
	return err
}
