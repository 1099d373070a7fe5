package store

import (
	"cmp"
	"errors"
	"io"

	"github.com/spf13/pflag"
)

// complete fills in the short help of the commands stop, load, check and shell that the store has
// not set. If the store has no function for the command check, complete sets the default one.
func (s *Store) complete() {
	c := &s.Commands
	c.Stop.Short = cmp.Or(c.Stop.Short, "Let the hosts forget the store; its keys stay in the memory servers")
	c.Load.Short = cmp.Or(c.Load.Short, "Insert the keys from 0 to --keys minus 1")
	if c.Check.New == nil {
		c.Check.Short = cmp.Or(c.Check.Short, "Let clients work on a few keys, and check that their history is linearizable")
		c.Check.From, c.Check.Output, c.Check.New = true, true, func(fs *pflag.FlagSet) func(*Call) (Result, error) { return newHistory(fs, c.NoLoss) }
		c.CheckWord = cmp.Or(c.CheckWord, "prove that the answers of clients are linearizable")
	}
	if c.ShellShort == "" {
		c.ShellShort, c.ShellExample = "Read commands, like get and put, line by line", "insert 7 hello\\nget 7"
	}
}

// newHistory is Command.New of the default command check: it adds the flags and returns the
// function that runs the command. If noLoss is true, the command has no flag --loss.
func newHistory(fs *pflag.FlagSet, noLoss bool) func(*Call) (Result, error) {
	in := HistoryRequest{Clients: 8, Keys: 16}
	HistoryFlags(fs, &in)
	if !noLoss {
		fs.BoolVar(&in.Loss, "loss", false, "accept the answer that a key was lost, and print how many operations had it: use it if hosts that have keys in their memory crash during the check")
	}
	return func(c *Call) (Result, error) {
		v, err := c.History(in)
		if err != nil {
			return nil, err
		}
		return &historyResult{v, in.Loss, noLoss}, nil
	}
}

// historyResult is a verdict on a history as the Result of a command.
type historyResult struct {
	Verdict
	loss, noLoss bool
}

func (h *historyResult) Write(w io.Writer) error {
	err := h.Verdict.Write(w, h.loss)
	if !h.noLoss {
		err = errors.Join(err, h.HintLoss(w))
	}
	return err
}

func (h *historyResult) Bad() bool { return !h.Linearizable }
