package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/store/kv"
)

// Commands is a store's part of the command line. Every store also has the commands get, put,
// insert, delete and shell. A store with Store.Upserts has upsert, and a store with Store.Scans has
// scan.
type Commands struct {
	// Short is the help of the store's command in one line. Help has the descriptions and examples of
	// the commands, in Markdown: a section "# rdmalab NAME" of the store's command, and one like
	// "# rdmalab NAME start" of each command that has a text of its own. A block of code (```sh) has
	// the examples, and all other lines are the description, in lines of at most 120 columns. The
	// other texts are those that all stores share (cli/help/store.md).
	Short, Help string
	Start, Stop Command
	// Stat shows the state of the store. Stat and StatWord are optional. Check checks the memory of
	// the store, or the answers of clients. Load inserts keys.
	Stat, Check, Load Command
	// ShellShort is the short help of the command `shell`. ShellExample is the input in the example
	// of that command's help. StatWord and CheckWord explain stat and check in the list that `help`
	// prints inside the shell. CheckWord is optional: without it the shell has no check.
	ShellShort, ShellExample, StatWord, CheckWord string
	// NoLoss is true if no crash that the store survives loses keys. Then the default check has no
	// flag --loss.
	NoLoss bool
	// Further are the commands that only this store has, by name.
	Further map[string]Command
	// Retired has former commands of the store, by name. Each value is the arguments of the
	// `rdmalab experiment` that replaces the command.
	Retired map[string]string
	// Prepare starts the store for a workload if it does not run. loaded is true if the keys of the
	// workload exist already.
	Prepare func(c *Call, w Workload) (loaded bool, err error)
}

// Workload describes a workload to Prepare.
type Workload struct {
	// Clients is the number of clients on all hosts. Load is true if the clients insert the keys
	// first.
	Clients int
	Load    bool
	Config  kv.RunConfig
	// Steered is true if the switch is to steer the requests.
	Steered bool
}

// Command is one command of a store.
type Command struct {
	// Short is the command's help in one line.
	Short string
	// From is true if the command has the flag --from, whose value is in Call.From: the host that
	// runs the command's client. Output is true if it has the flag -o with table and json.
	From, Output bool
	// Running is true if the command works only with a running store.
	Running bool
	// Arg is the name of the command's argument, whose value is in Call.Arg. Optional; "" means
	// that the command has no argument.
	Arg string
	// New adds the command's flags and returns the function that runs the command after the flags
	// are parsed. If that function returns a nil Result, nothing is printed. Stop, Check and Load
	// work without New: stop stops the store on the hosts that Store.Places returns; check lets
	// clients of a host make a history and proves that it is linearizable; load lets clients on all
	// compute hosts insert the keys. If their Short is empty as well, they get a default one.
	New func(fs *pflag.FlagSet) func(c *Call) (Result, error)
	// Choices are the values that completion offers for flags, by the name of the flag.
	Choices map[string][]string
}

// Result is what a command prints. With -o json the value itself is printed as JSON, and without it
// the text that Write writes.
type Result interface {
	Write(w io.Writer) error
}

// Failing is a Result that can report a failure, such as a history that is not linearizable. If Bad
// returns true, the exit status of rdmalab is 1.
type Failing interface {
	Result
	Bad() bool
}

// Call is one run of a command.
type Call struct {
	Context context.Context
	Store   *Store
	Rack    *rackfile.Rack
	// From is the host that runs the command's client; "" stands for the first compute host.
	From string
	// Arg is the value of the command's argument (Command.Arg); "" if the command has none.
	Arg string
	// JSON is true if the result will be printed as JSON. Err is for remarks that are no part of
	// the result.
	JSON bool
	Err  io.Writer
	// Ask sends a POST request to a host's daemon, and waits for the answer until ctx ends. Host ""
	// stands for From. An error of Ask names the host.
	Ask func(ctx context.Context, host, path string, in, out any) error
	// Fresh is the first of 65,536 keys that no other call uses.
	Fresh uint64
	// Free returns an error if another store is up on the rack.
	Free func() error
}

// Memory returns the names of the memory servers.
func (c *Call) Memory() []string {
	list, _ := c.Rack.NamesByRole(rackfile.Memory) // there may be none
	return list
}

// Options returns the ClientOptions for the call's store.
func (c *Call) Options() (o ClientOptions, err error) {
	if c.Store.Server != nil {
		o.Server, err = c.Store.Server(c.Rack)
	}
	return o, err
}

// Post calls Ask, and waits until the Context of the call ends.
func (c *Call) Post(host, path string, in, out any) error {
	return c.Ask(c.Context, host, path, in, out)
}

// PostWithin is Post with a time limit: a host that hangs answers nothing.
func (c *Call) PostWithin(limit time.Duration, host, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(c.Context, limit)
	defer cancel()
	return c.Ask(ctx, host, path, in, out)
}

// PostStart asks a host's daemon to start the part of the store that runs on this host. It waits
// for the answer for at most StartLimit. After that the daemon may go on starting it.
func (c *Call) PostStart(host string, in, out any) error {
	limit := c.Store.StartLimit()
	err := c.PostWithin(limit, host, c.Store.Path(PathStart), in, out)
	if errors.Is(err, context.DeadlineExceeded) && c.Context.Err() == nil {
		err = fmt.Errorf("%w within %v: it may still be starting its part of the store; see `rdmalab status`", err, limit)
	}
	return err
}

// History asks the daemon of host From to make a history, and returns the verdict. If in.Base is 0,
// the history uses keys that no other history uses. When the context of the call ends, the clients end, and
// the verdict is about what they have done.
func (c *Call) History(in HistoryRequest) (out Verdict, err error) {
	o, err := c.Options()
	if err != nil {
		return out, err
	}
	in.Server = o.Server
	in.Base = cmp.Or(in.Base, c.Fresh)
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.Context))
	defer cancel()
	stop := context.AfterFunc(c.Context, func() {
		late := time.AfterFunc(endPatience, cancel) //nolint:forbidigo // of a command, in real time
		if c.Ask(ctx, "", c.Store.Path(PathHistoryEnd), nil, nil) != nil {
			late.Stop()
			cancel()
		}
	})
	defer stop()
	return out, c.Ask(ctx, "", c.Store.Path(PathHistory), in, &out)
}

// endPatience bounds how long clients that are to end may take, whose operations may be waiting for a host that does
// not answer.
const endPatience = 15 * time.Second

// HistoryIfAny does the work of History if in.Clients is above 0. Without clients there is no
// history, and it returns nil.
func (c *Call) HistoryIfAny(in HistoryRequest) (*Verdict, error) {
	if in.Clients == 0 {
		return nil, nil
	}
	v, err := c.History(in)
	return &v, err
}

// StartHosts starts a store whose only servers are the memory servers. It sends a start request
// to each of the store's hosts, one after the other. request returns the body of a start request,
// given the names of the memory servers; first is true for the first host. If the first host fails,
// StartHosts returns its error. Otherwise info is the answer of the first host. For each later host
// that fails, StartHosts prints a warning that the host does not know the store. The parameter what
// is the noun for the store in this warning, such as "tree".
func StartHosts[Info any](c *Call, what string, request func(servers []string, first bool) any) (info Info, err error) {
	servers := c.Memory()
	if len(servers) == 0 {
		return info, fmt.Errorf("rack %s has no memory server: give one `role: memory` in the rack file", c.Rack.Name)
	}
	hosts, err := c.Store.Places(c.Rack)
	if err != nil {
		return info, err
	}
	if err := c.Free(); err != nil {
		return info, err
	}
	for i, host := range hosts {
		var got Info
		err := c.PostStart(host, request(servers, i == 0), &got)
		switch {
		case i == 0 && err != nil:
			return info, err
		case i == 0:
			info = got
		case err != nil:
			// The host may have crashed.
			_, _ = fmt.Fprintf(c.Err, "host %s does not know the %s: %v\n", host, what, err)
		}
	}
	return info, nil
}

// Proof is the result of a check that reads a store's memory. The check may let clients make a
// history first. A store embeds Proof in its report of the memory.
type Proof struct {
	// History is the verdict on the clients' history; nil means that the check ran no clients.
	History *Verdict `json:"history,omitempty"`
	// Why describes what is wrong with the memory; "" means that nothing is wrong.
	Why  string        `json:"why,omitempty"`
	Took time.Duration `json:"tookNs"`
}

// Bad implements Failing. It returns true if the memory is wrong or the history is not
// linearizable.
func (p *Proof) Bad() bool { return p.Why != "" || p.History != nil && !p.History.Linearizable }

// Print prints the verdict on the history, then the string `memory`, and then what is wrong with
// the memory, or the string `right` if nothing is wrong.
func (p *Proof) Print(out io.Writer, memory, right string) error {
	if p.History != nil {
		if err := p.History.Write(out, false); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(out, memory+cmp.Or(p.Why, right))
	return err
}

// HistoryFlags adds the flags that describe a history, such as --clients and --rounds. The values
// in `in` are the defaults.
func HistoryFlags(fs *pflag.FlagSet, in *HistoryRequest) {
	what, only := "number of clients on the host --from, 1 to 64", ""
	if in.Clients == 0 {
		only = "with --clients: "
		what = "clients whose operations are checked first, up to 64 (default 0: only the memory is checked)"
	}
	fs.IntVar(&in.Clients, "clients", in.Clients, what)
	fs.IntVar(&in.Rounds, "rounds", 200, only+"operations of each client, 1 to 10000; if a PUT finds that its key does not exist, the client INSERTs the key")
	fs.IntVar(&in.Keys, "keys", in.Keys, only+"number of keys on which the clients work, 1 to 1048576")
	fs.DurationVar(&in.Every, "every", 0, only+"pause of each client between two operations, up to 1s, so that the check lasts while something fails; Ctrl-C ends the clients, and what they have done is checked (default: none)")
	fs.Uint64Var(&in.Seed, "seed", 1, only+"seed of the operations")
	fs.Uint64Var(&in.Base, "base", 0, only+"first of the keys on which the clients work, 1 or more; these keys must not exist yet (default: keys that were never used)")
}

// Renamed makes fs accept flags also by their earlier names. renamed maps each earlier name to the
// present one. Help and completion show only the present names.
func Renamed(fs *pflag.FlagSet, renamed map[string]string) {
	fs.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if now, ok := renamed[name]; ok {
			name = now
		}
		return pflag.NormalizedName(name)
	})
}

// Write prints the verdict on a history. If lost is true, it also prints the number of operations
// that found their key lost.
func (v *Verdict) Write(out io.Writer, lost bool) error {
	_, _ = fmt.Fprintf(out, "%d operations in %v, %d without an answer", v.Operations, v.Took.Round(time.Millisecond), v.Unknown)
	if lost {
		_, _ = fmt.Fprintf(out, ", %d found their key lost", v.Lost)
	}
	switch {
	case v.Undecided:
		_, err := fmt.Fprintf(out, "\nundecided: %s\n", v.Why)
		return err
	case !v.Linearizable:
		_, err := fmt.Fprintf(out, "\nnot linearizable: %s\n", v.Why)
		return err
	}
	_, err := fmt.Fprintln(out, "\nlinearizable: one order of all operations on each key explains every answer")
	return err
}

// HintLoss prints that check has a flag --loss, if a loss of memory would explain every answer.
func (v *Verdict) HintLoss(out io.Writer) error {
	if !v.OnlyLost {
		return nil
	}
	_, err := fmt.Fprintln(out, "a loss of memory would explain every answer: if a memory server crashed during the check, use check --loss")
	return err
}

// UseError is a mistake in the command line that the user typed.
type UseError struct{ error }

func (e UseError) Unwrap() error { return e.error }

// BadUse makes a UseError. Its arguments are those of fmt.Errorf.
func BadUse(format string, args ...any) error { return UseError{fmt.Errorf(format, args...)} }

func IsUse(err error) bool {
	var u UseError
	return errors.As(err, &u)
}
