package plugin

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/store"
)

// lookAgain is how long stat waits before it reads the locks a second time. It is longer than an
// operation holds a lock.
const lookAgain = 20 * time.Millisecond

func newStat(fs *pflag.FlagSet) func(*store.Call) (store.Result, error) {
	all := fs.Bool("all", false, "also show locks whose word has changed between the two reads")
	return func(c *store.Call) (store.Result, error) {
		var first, st Stat
		if err := c.Post("", Store.Path(PathStat), nil, &first); err != nil {
			return nil, err
		}
		st = first
		if len(first.Locks) > 0 {
			time.Sleep(lookAgain)
			if err := c.Post("", Store.Path(PathStat), nil, &st); err != nil {
				return nil, err
			}
		}
		if !*all {
			st.Locks = unmoved(first.Locks, st.Locks)
		}
		return &st, nil
	}
}

// unmoved lists the locks in `after` that have the same tag in `before`: their words have not
// changed.
func unmoved(before, after []Lock) (out []Lock) {
	type name struct {
		server     string
		index      int
		owner, acq uint32
	}
	was := make(map[name]bool)
	of := func(l *Lock) name { return name{l.Server, l.Index, l.Owner, l.Acquisition} }
	for i := range before {
		was[of(&before[i])] = true
	}
	for i := range after {
		if was[of(&after[i])] {
			out = append(out, after[i])
		}
	}
	return out
}

func (st *Stat) Write(out io.Writer) error {
	t, n := &st.Tree, &st.Node
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(w, "tree\t%016x\t%s pages of %d bytes, values of up to %d, root %s\n", t.Generation, t.Layout, t.Page, t.Value, st.Root)
	for i, u := range st.Used {
		_, _ = fmt.Fprintf(w, "server %d\t%d of %d bytes used\t%d of them free again, %d locks\n", i, u, st.Size[i], st.Free[i], t.Locks)
	}
	_, _ = fmt.Fprintf(w, "locks\t%d got\t%d handed over, %d CAS; waits p50 %.1f us, p99 %.1f us, longest %.1f us\n", n.Acquires, n.HandOvers, n.CAS, n.WaitP50, n.WaitP99, n.WaitMax)
	_, _ = fmt.Fprintf(w, "trouble\t%d taken from the dead\tfenced %d times, %d operations in doubt\n", n.Recovered, n.Fenced, n.Doubts)
	_, _ = fmt.Fprintf(w, "pages\t%d split\t%d new roots, %d separators put in for others, %d steps to a sibling, %d read again\n", n.Splits, n.Roots, n.Healed, n.Moves, n.Torn)
	_, _ = fmt.Fprintf(w, "merges\t%d pages merged\t%d reused, %d searches begun again\n", n.Merges.Merged, n.Merges.Reused, n.Merges.Restarts)
	_, _ = fmt.Fprintf(w, "cache\t%d pages\t%d bytes, %d hits, %d misses\n", n.CachePages, n.CacheBytes, n.CacheHits, n.CacheMisses)
	if err := w.Flush(); err != nil {
		return err
	}
	if len(st.Locks) == 0 {
		_, err := fmt.Fprintln(out, "no lock is held")
		return err
	}
	_, _ = fmt.Fprintln(w, "\nLOCK\tOWNER\tHOST\tSTATE\tHELD FOR\tLEASE LEFT")
	for i := range st.Locks {
		l := &st.Locks[i]
		state := "alive"
		switch {
		case l.Fenced:
			state = "fenced"
		case !l.Alive:
			state = "gone"
		}
		_, _ = fmt.Fprintf(w, "%s/%d\t%d\t%s\t%s\t%.1f ms\t%.1f of %.1f ms\n", l.Server, l.Index, l.Owner, l.Host, state, l.SeenMs, l.LeftMs, st.Lease)
	}
	return w.Flush()
}
