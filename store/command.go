package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// Commands are a store's part of the command line. get, put, insert, delete, shell, and upsert and
// scan where the store has them, are made for every store.
type Commands struct {
	// Short, Long and Example explain the store's command as those of cobra do.
	Short, Long, Example string
	Start, Stop          Command
	// Stat shows the state of the store, Check proves that it is right, Load inserts keys.
	Stat, Check, Load Command
	// ShellShort lists the operations of the shell; StatWord and CheckWord explain stat and check
	// there. CheckWord is optional: without it the shell has no check.
	ShellShort, ShellExample, StatWord, CheckWord string
	// Retired are former commands of the store, and the arguments of `rdmalab experiment` that have
	// replaced them.
	Retired map[string]string
	// Prepare starts the store for a workload, if it does not run. loaded says that the keys exist
	// already.
	Prepare func(c *Call, w Workload) (loaded bool, err error)
}

// Workload describes a workload to Prepare.
type Workload struct {
	// Clients is the number of clients on all hosts, Load whether the keys are to be inserted.
	Clients int
	Load    bool
	Config  kv.RunConfig
}

// Command is one command of a store.
type Command struct {
	Short, Long, Example string
	// From adds the flag --from: Call.From is the host that runs the command's client. Output adds
	// -o table or json.
	From, Output bool
	// Running: the command needs a running store.
	Running bool
	// New adds the command's flags, and returns the function that runs it once they are parsed. A
	// nil Result prints nothing. Stop and Load have defaults without New: stop stops the store on
	// its Places, load lets clients on all compute hosts insert the keys.
	New func(fs *pflag.FlagSet) func(c *Call) (Result, error)
	// Choices are the values that completion offers for a flag, by its name.
	Choices map[string][]string
}

// Result is printed by a command: with -o json the value itself as JSON, otherwise the text that
// Write writes.
type Result interface {
	Write(w io.Writer) error
}

// Failing is a Result that can be a negative verdict: the exit status is 1 then.
type Failing interface {
	Result
	Bad() bool
}

// Call is one run of a command.
type Call struct {
	Context context.Context
	Store   *Store
	Rack    *spec.Rack
	// From is the host that runs the command's client; "" stands for the first compute host.
	From string
	// JSON: the result will be printed as JSON. Err is for remarks beside the result.
	JSON bool
	Err  io.Writer
	// Post sends a request to a host's daemon; host "" stands for From. Errors name the host.
	Post func(host, path string, in, out any) error
	// Fresh is the first of 65,536 keys that no other call has.
	Fresh uint64
	// Free reports an error if another store uses the memory servers.
	Free func() error
}

// Memory lists the names of the memory servers.
func (c *Call) Memory() (out []string) {
	for _, h := range c.Rack.ByRole(spec.Memory) {
		out = append(out, h.Name)
	}
	return out
}

// Options are the ClientOptions of the call's store.
func (c *Call) Options() (o ClientOptions, err error) {
	if c.Store.Server != nil {
		o.Server, err = c.Store.Server(c.Rack)
	}
	return o, err
}

// History has the host of From make a history. A Base of 0 stands for keys that no other history
// has.
func (c *Call) History(in HistoryRequest) (out Verdict, err error) {
	o, err := c.Options()
	if err != nil {
		return out, err
	}
	in.Server = o.Server
	if in.Base == 0 {
		in.Base = c.Fresh
	}
	return out, c.Post("", c.Store.Path(PathHistory), in, &out)
}

// HistoryFlags adds the flags of a history. The values in are the defaults.
func HistoryFlags(fs *pflag.FlagSet, in *HistoryRequest) {
	none := ""
	if in.Clients == 0 {
		none = " whose operations are checked first (default 0: only the tree is checked)"
	} else {
		none = " on the host"
	}
	fs.IntVar(&in.Clients, "clients", in.Clients, "clients"+none)
	fs.IntVar(&in.Rounds, "rounds", 200, "operations of each client")
	fs.IntVar(&in.Keys, "keys", in.Keys, "keys on which the clients work")
	fs.Uint64Var(&in.Seed, "seed", 1, "seed of the operations")
	fs.Uint64Var(&in.Base, "base", 0, "the first of the keys (default: keys that were never used)")
}

// Renamed has fs take flags by earlier names, too. Help and completion show the new names only.
// renamed has the new names by the earlier ones.
func Renamed(fs *pflag.FlagSet, renamed map[string]string) {
	fs.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if now, ok := renamed[name]; ok {
			name = now
		}
		return pflag.NormalizedName(name)
	})
}

// Write prints the verdict on a history; lost says whether lost keys are counted.
func (v *Verdict) Write(out io.Writer, lost bool) error {
	_, _ = fmt.Fprintf(out, "%d operations in %v, %d without an answer", v.Operations, v.Took.Round(time.Millisecond), v.Unknown)
	if lost {
		_, _ = fmt.Fprintf(out, ", %d found their key lost", v.Lost)
	}
	if !v.Linearizable {
		_, err := fmt.Fprintf(out, "\nnot linearizable: %s\n", v.Why)
		return err
	}
	_, err := fmt.Fprintln(out, "\nlinearizable: one order of all operations on each key explains every answer")
	return err
}

// UseError is an error in the command line that the user typed.
type UseError struct{ error }

// Unwrap returns the cause.
func (e UseError) Unwrap() error { return e.error }

// BadUse makes a UseError; its arguments are those of fmt.Errorf.
func BadUse(format string, args ...any) error { return UseError{fmt.Errorf(format, args...)} }

// IsUse reports whether an error is a UseError.
func IsUse(err error) bool {
	var u UseError
	return errors.As(err, &u)
}
