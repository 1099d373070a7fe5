package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/kv"
)

func storeCmds() (out []*cobra.Command) {
	for _, s := range store.All() {
		out = append(out, storeCmd(s))
	}
	return out
}

func storeCmd(s *store.Store) *cobra.Command {
	c := &s.Commands
	cmd := &cobra.Command{Use: s.Name + " COMMAND", Short: c.Short}
	stop := stopOf(s)
	load := loadCmd
	if c.Load.New != nil {
		load = func(s *store.Store) *cobra.Command { return subCmd(s, "load", &c.Load) }
	}
	cmd.AddCommand(subCmd(s, "start", &c.Start), subCmd(s, "stop", &stop), subCmd(s, "check", &c.Check), load(s))
	if c.Stat.New != nil {
		cmd.AddCommand(subCmd(s, "stat", &c.Stat))
	}
	if s.Scans {
		cmd.AddCommand(scanCmd(s))
	}
	cmd.AddCommand(shellCmd(s))
	for _, name := range slices.Sorted(maps.Keys(c.Further)) {
		d := c.Further[name]
		cmd.AddCommand(subCmd(s, name, &d))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Retired)) {
		cmd.AddCommand(retired(name, c.Retired[name]))
	}
	for _, op := range opsOf(s) {
		cmd.AddCommand(opCmd(s, op))
	}
	return cmd
}

func subCmd(s *store.Store, name string, d *store.Command) *cobra.Command {
	var from string
	cmd := &cobra.Command{Use: name, Short: d.Short, Args: cobra.NoArgs}
	if d.Arg != "" {
		cmd.Use, cmd.Args = name+" "+d.Arg, cobra.ExactArgs(1)
	}
	run := d.New(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		call, err := storeCall(cmd, s, from)
		if err != nil {
			return err
		}
		if d.Arg != "" {
			call.Arg = args[0]
		}
		call.JSON = d.Output && wantJSON(cmd)
		if d.Running {
			if err := notStarted(call, statusOf(cmd)); err != nil {
				return err
			}
		}
		res, err := run(call)
		if res == nil {
			return err
		}
		return errors.Join(err, printResult(cmd, res, call.JSON))
	}
	for flag, values := range d.Choices {
		complete(cmd, flag, values...)
	}
	if d.From {
		fromFlag(cmd, &from)
	}
	if d.Output {
		outputFlag(cmd)
	}
	return cmd
}

// printResult prints the result of a command. A negative verdict leads to exit status 1.
func printResult(cmd *cobra.Command, res store.Result, asJSON bool) (err error) {
	if asJSON {
		err = printJSON(cmd, res)
	} else {
		err = res.Write(cmd.OutOrStdout())
	}
	if f, ok := res.(store.Failing); err == nil && ok && f.Bad() {
		err = exitCode(1)
	}
	return err
}

// storeCall prepares a call of a store's command. The command's client runs on the host `from`; ""
// means on the first compute host.
func storeCall(cmd *cobra.Command, s *store.Store, from string) (*store.Call, error) {
	rack, _, err := rackOf(cmd)
	if err != nil {
		return nil, err
	}
	c := &store.Call{
		Context: cmd.Context(), Store: s, Rack: rack, From: from, Err: cmd.ErrOrStderr(),
		Fresh: uint64(time.Now().UnixNano()) &^ 0xffff,
		Free:  func() error { return freeFor(s.Name, rack, statusOf(cmd)) },
	}
	c.Ask = func(ctx context.Context, host, path string, in, out any) error {
		if host == "" {
			if host, err = clientHost(rack, from); err != nil {
				return err
			}
		}
		client, err := hostControl(cmd, host)
		if err != nil {
			return err
		}
		if err := awake(ctx, client, host); err != nil {
			return err
		}
		if err := client.Call(ctx, http.MethodPost, path, in, out); err != nil {
			return fmt.Errorf("host %s: %w", host, err)
		}
		return nil
	}
	return c, nil
}

// clientHost returns the name of the host on which the client of a command runs: `from` or, if
// `from` is "", the first compute host.
func clientHost(rack *rackfile.Rack, from string) (string, error) {
	if from != "" {
		return from, nil
	}
	list := rack.ByRole(rackfile.Compute)
	if len(list) == 0 {
		return "", fmt.Errorf("rack %s has no compute host: name a host with --from", rack.Name)
	}
	return list[0].Name, nil
}

func stopOf(s *store.Store) store.Command {
	stop := s.Commands.Stop
	if stop.New == nil {
		stop.New = newStop
	}
	return stop
}

// stopStore does the same as the store's command stop, also if cmd was interrupted.
func stopStore(cmd *cobra.Command, s *store.Store) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), undoPatience)
	defer cancel()
	c := *cmd
	c.SetContext(ctx)
	call, err := storeCall(&c, s, "")
	if err != nil {
		return err
	}
	stop := stopOf(s)
	_, err = stop.New(pflag.NewFlagSet("", pflag.ContinueOnError))(call)
	return err
}

// newStop returns the command that stops a store, on all hosts on which it was started.
func newStop(*pflag.FlagSet) func(*store.Call) (store.Result, error) {
	return func(c *store.Call) (store.Result, error) {
		hosts, err := c.Store.Places(c.Rack)
		if err != nil {
			return nil, err
		}
		for _, host := range hosts {
			err = errors.Join(err, c.Post(host, c.Store.Path(store.PathStop), nil, nil))
		}
		return nil, err
	}
}

// storeOp describes the command of an operation on one key. word describes the operation in the
// list that the shell's command help prints.
type storeOp struct{ name, use, short, word string }

func (o *storeOp) takesValue() bool { return o.name != "get" && o.name != "delete" }

func opsOf(s *store.Store) []storeOp {
	list := []storeOp{
		{"get", "get KEY", "Read the value of a key", "print the value of a key"},
		{"put", "put KEY VALUE", "Replace the value of a key that exists", "replace the value of a key that exists"},
		{"insert", "insert KEY VALUE", "Add a key with its value", "add a key with its value"},
		{"upsert", "upsert KEY VALUE", "Add a key, or replace its value", "add a key, or replace its value"},
		{"delete", "delete KEY", "Remove a key and its value", "remove a key and its value"},
	}
	if !s.Upserts {
		list = slices.Delete(list, 3, 4)
	}
	return list
}

func opCmd(s *store.Store, op storeOp) *cobra.Command {
	var from string
	var verbose bool
	cmd := &cobra.Command{
		Use: op.use, Short: op.short,
		Args: cobra.ExactArgs(either(op.takesValue(), 2, 1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			in := store.OpRequest{Op: op.name}
			if len(args) > 1 {
				in.Value = []byte(args[1])
			}
			out, err := storeRequest(cmd, s, from, args[0], in)
			if err == nil && op.name == "get" {
				_, _ = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", out.Value)
			}
			return errors.Join(err, printCost(cmd, verbose, out))
		},
	}
	opFlags(cmd, &from, &verbose)
	return cmd
}

func storeRequest(cmd *cobra.Command, s *store.Store, from, key string, in store.OpRequest) (*store.Answer, error) {
	var err error
	if in.Key, err = strconv.ParseUint(key, 0, 64); err != nil {
		return nil, badUse("key %q: want a number from 0 to 2^64-1", key)
	}
	call, err := storeCall(cmd, s, from)
	if err != nil {
		return nil, err
	}
	if err := notStarted(call, statusOf(cmd)); err != nil {
		return nil, err
	}
	if in.ClientOptions, err = call.Options(); err != nil {
		return nil, err
	}
	out := new(store.Answer)
	if err := call.Post("", s.Path(store.PathOp), in, out); err != nil {
		return nil, err
	}
	return out, nil
}

// printCost prints the time and the round trips of an operation that has succeeded, if verbose is
// true.
func printCost(cmd *cobra.Command, verbose bool, a *store.Answer) error {
	if !verbose || a == nil {
		return nil
	}
	_, err := fmt.Fprintf(cmd.ErrOrStderr(), "%v, %s\n", a.Took.Round(time.Microsecond/10), a.Cost)
	return err
}

func scanCmd(s *store.Store) *cobra.Command {
	var from string
	var verbose bool
	n := 20
	cmd := &cobra.Command{
		Use:   "scan KEY",
		Short: "List keys in order, with their values",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			out, err := storeRequest(cmd, s, from, args[0], store.OpRequest{Op: "scan", N: n})
			if err != nil {
				return err
			}
			for _, r := range out.Records {
				_, _ = fmt.Fprintf(cmd.OutOrStdout(), "%d\t%s\n", r.Key, printable(r.Value))
			}
			return printCost(cmd, verbose, out)
		},
	}
	cmd.Flags().IntVarP(&n, "count", "n", n, fmt.Sprintf("largest number of records to print, 1 to %d", kv.MaxScan))
	opFlags(cmd, &from, &verbose)
	return cmd
}

// printable returns a value as text if it is printable, otherwise in hexadecimal digits.
func printable(v []byte) string {
	for _, c := range v {
		if c < ' ' || c > '~' {
			return fmt.Sprintf("%x", v)
		}
	}
	return string(v)
}
