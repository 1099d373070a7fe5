package store

import (
	"cmp"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/pflag"
)

// complete fills in the help texts of the commands stop, load, check and shell that the store has
// not set. If the store has no function for the command check, complete sets the default one.
func (s *Store) complete() {
	c := &s.Commands
	or := func(d *Command, short, long, example string) {
		if d.Short == "" {
			d.Short, d.Long, d.Example = short, long, example
		}
	}
	or(
		&c.Stop, "Let the hosts forget the store; its keys stay in the memory servers",
		fmt.Sprintf("stop makes every compute host forget the store, and prints nothing. Its keys stay in the memory of the memory\n"+
			"servers. New operations fail until `rdmalab %s start`, which finds the keys again; a workload that runs goes\n"+
			"on. Only one store can use the memory servers at a time: after stop, another one can be started with --fresh, which\n"+
			"destroys the keys of this store.", s.Name),
		fmt.Sprintf("  rdmalab %s stop\n  rdmalab %[1]s start # finds its keys again", s.Name),
	)
	or(
		&c.Load, "Insert the keys from 0 to --keys minus 1",
		"load lets clients on all compute hosts insert the keys 0, 1, 2 and so on, as many as --keys says. A key that\n"+
			"exists already keeps its value. Each value contains its key and the number of its write, from which its other\n"+
			"bytes follow, so that `rdmalab run ycsb --no-load` can verify what it reads. load prints the first and the\n"+
			"last key, the largest length of a value, and how long it took. If the store has not been started, load starts it.",
		fmt.Sprintf("  rdmalab %s load --keys 1000\n  rdmalab run ycsb --store %[1]s --keys 1000 --no-load", s.Name),
	)
	if c.Check.New == nil {
		or(
			&c.Check, "Let clients work on a few keys, and check that their history is linearizable",
			"check lets several clients on one host read, write, insert and delete a few keys, and records every operation\n"+
				"with its answer (the history). Then it looks for one order of the operations on each key that explains all\n"+
				"answers and agrees with the times of the operations: the history is linearizable if there is such an order. You\n"+
				"may inject faults while check runs. The store must have been started.\n\n"+
				"check prints the number of operations, how long they took, how many had no answer, because they timed out, and\n"+
				"whether the history is linearizable. If it is not, check prints the last 60 operations on the first such key. If\n"+
				"the search for an order takes too long, check gives it up, and prints that it was not decided. In both cases, and\n"+
				"if a client reads a value that no client has written, the exit status is 1.",
			fmt.Sprintf("  rdmalab %s check\n  rdmalab inject loss 5%% --link cn0 && rdmalab %[1]s check --clients 8 --rounds 500", s.Name),
		)
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
