package check_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/sherman/check"
	"github.com/rdmalab/rdmalab/sherman/layout"
)

// pages returns how many pages the rig has allocated on a server.
func (r *rig) pages(server int) int {
	return int(r.next[server]-r.super.FirstChunk()) / r.super.Shape.Page
}

// must runs a check that must not fail.
func must(t *testing.T, cfg check.Config) *check.Report {
	t.Helper()
	rep, err := check.Check(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

// A report counts the pages of each level, the records that fit into the leaves, and the READs: as
// many as the blocks of the allocated memory, which are whole pages.
func TestReportOfAWholeTree(t *testing.T) {
	for _, kind := range kinds {
		r := newRig(t, kind, 5000)
		page := r.super.Shape.Page
		for _, c := range []struct{ block, pages int }{{0, 64 << 10 / page}, {4*page + page/2, 4}, {page, 1}, {1, 1}, {64 << 20, 64 << 20 / page}} {
			cfg := r.config()
			cfg.Block = c.block
			rep := must(t, cfg)
			want := check.Report{Content: r.want, Room: uint64(len(r.levels[0]) * r.super.Shape.Slots(0))}
			for _, l := range r.levels {
				want.Levels = append(want.Levels, len(l))
			}
			for s := range 2 {
				want.Reads += (r.pages(s) + c.pages - 1) / c.pages
				want.Bytes += uint64(r.pages(s) * page)
			}
			if fmt.Sprintf("%+v", *rep) != fmt.Sprintf("%+v", want) {
				t.Errorf("%v, blocks of %d bytes:\n%+v\nwant\n%+v", kind, c.block, *rep, want)
			}
		}
	}
}

// A report in one line says what was counted.
func TestReportInWords(t *testing.T) {
	rep := check.Report{
		Levels: []int{7, 1}, Content: check.Content{Keys: 50}, Room: 200, HalfSplits: 2, Closed: 3, Free: 4, Unreachable: 5, Unused: 6, Locked: 8, Dead: 1,
	}
	const rest = "; 2 half-done splits, 3 half-done merges, 4 free pages, 5 unreachable, 6 never written; 8 locks held, 1 of them by dead owners"
	if got := rep.String(); got != "50 keys in 8 pages on 2 levels, leaves 25% full"+rest {
		t.Errorf("%q", got)
	}
	rep.Room = 0
	if got := rep.String(); got != "50 keys in 8 pages on 2 levels"+rest {
		t.Errorf("%q", got)
	}
	rep.Room, rep.Content.Keys = 1, 1
	if got := rep.String(); !strings.Contains(got, "100% full") {
		t.Errorf("%q", got)
	}
}

// The digest of keys is the sum of their values of splitmix64, so other programs can compute it.
func TestDigestOfKeys(t *testing.T) {
	const step = 0x9e3779b97f4a7c15 // of splitmix64; its first outputs from seed 0:
	outputs := []uint64{0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f}
	var c check.Content
	sum := uint64(0)
	for i, out := range outputs {
		key := uint64(step)
		c.Add(key * uint64(i))
		if sum += out; c.Sum != sum || c.Keys != uint64(i+1) {
			t.Errorf("after %d keys: %+v, want the sum %#x", i+1, c, sum)
		}
	}
}

// A report describes 20 problems and counts the others; one page adds one problem of each kind.
func TestManyProblems(t *testing.T) {
	for _, n := range []int{0, 1, 20, 21, 30} {
		r := newRig(t, layout.Hardened, 5000)
		for _, a := range r.levels[0][:n] {
			p := r.page(a)
			first, _ := p.Slot(0) // the lowest key, three times
			for range 2 {
				p.Put(p.FreeSlot(), first.Key, value(first.Key))
			}
		}
		cfg := r.config()
		cfg.Want = nil
		rep := must(t, cfg)
		if rep.Wrong != n || len(rep.Problems) != min(n, 20) || rep.Has(check.Duplicate) != (n > 0) || rep.Has(check.Gap) {
			t.Errorf("%d problems: %d are counted, %d described", n, rep.Wrong, len(rep.Problems))
		}
		err := rep.Err()
		if n == 0 {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		lines := strings.Split(err.Error(), "\n")
		if lines[0] != fmt.Sprintf("the tree has %d faults", n) {
			t.Errorf("%q", lines[0])
		}
		if last, more := lines[len(lines)-1], fmt.Sprintf("  and %d more", n-20); (n > 20) != (last == more) || len(lines) != 1+min(n, 21) {
			t.Errorf("%d problems: %d lines, the last one %q", n, len(lines), last)
		}
	}
}

// A configuration without a function that reads, with a wrong number of ends or with an impossible
// superblock is refused. Ends beyond the memory are taken for its end.
func TestConfigurations(t *testing.T) {
	for what, c := range map[string]struct {
		change func(cfg *check.Config)
		ok     bool
	}{
		"as it is":        {func(*check.Config) {}, true},
		"without Read":    {func(cfg *check.Config) { cfg.Read = nil }, false},
		"one end too few": {func(cfg *check.Config) { cfg.Ends = cfg.Ends[:1] }, false},
		"no generation":   {func(cfg *check.Config) { cfg.Super.Generation = 0 }, false},
		"no shape":        {func(cfg *check.Config) { cfg.Super.Shape = layout.Shape{} }, false},
		"ends too high":   {func(cfg *check.Config) { cfg.Ends = []uint64{1 << 60, 1 << 60} }, true},
	} {
		r := newRig(t, layout.Hardened, 500)
		cfg := r.config()
		c.change(&cfg)
		rep, err := check.Check(cfg)
		if (err == nil) != c.ok || c.ok && rep.Err() != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	r := newRig(t, layout.Hardened, 0)
	cfg := r.config()
	cfg.Ends = []uint64{0, 0}
	if rep := must(t, cfg); rep.Reads != 0 || !rep.Has(check.BadRoot) {
		t.Errorf("a tree without allocated memory: %d READs, %v", rep.Reads, rep.Err())
	}
}

// A check fails if a READ does, whichever, or if the end of the memory cannot be read.
func TestFailedReads(t *testing.T) {
	fail := errors.New("the server is down")
	for _, kind := range kinds {
		r := newRig(t, kind, 500)
		clear(r.bytes(r.leaf())) // so that it is read again
		whole := must(t, r.config())
		for n := range whole.Reads {
			cfg := r.config()
			at := n
			cfg.Read = func(a layout.Addr, b []byte) error {
				if at--; at < 0 {
					return fail
				}
				return r.read(a, b)
			}
			if rep, err := check.Check(cfg); !errors.Is(err, fail) || rep != nil {
				t.Fatalf("%v, READ %d of %d: %v", kind, n, whole.Reads, err)
			}
		}
		r = newRig(t, kind, 500)
		cfg := r.config()
		cfg.Ends[0] = r.super.FirstChunk()
		cfg.End = func(int) (uint64, error) { return 0, fail }
		if _, err := check.Check(cfg); !errors.Is(err, fail) {
			t.Errorf("%v: the allocation word is not read: %v", kind, err)
		}
		cfg = r.config()
		reads := 0
		cfg.Visit = func(uint64, []byte) error { return nil }
		cfg.Read = func(a layout.Addr, b []byte) error {
			if reads++; len(b) == r.super.Shape.Page {
				return fail // only Visit reads single pages
			}
			return r.read(a, b)
		}
		if _, err := check.Check(cfg); !errors.Is(err, fail) || reads < 2 {
			t.Errorf("%v: a leaf is not read for Visit: %v", kind, err)
		}
	}
}

// Memory that clients have taken since the check began is part of the tree, up to the memory's end.
func TestMemoryTakenMeanwhile(t *testing.T) {
	for _, kind := range kinds {
		r := newRig(t, kind, 5000)
		cfg := r.config()
		cfg.Ends = []uint64{r.super.FirstChunk(), r.super.FirstChunk()}
		asked := 0
		cfg.End = func(server int) (uint64, error) {
			asked++
			return []uint64{r.next[0], 1 << 60}[server], nil
		}
		rep := must(t, cfg)
		if rep.Err() != nil || asked != 2 || rep.Content != r.want {
			t.Errorf("%v: %d allocation words were read; %v", kind, asked, rep.Err())
		}
		cfg = r.config()
		cfg.End = func(int) (uint64, error) { t.Error("an allocation word is read for nothing"); return 0, nil }
		must(t, cfg)
		cfg.Root = layout.At(9, 1<<30)
		if rep := must(t, cfg); !rep.Has(check.BadRoot) {
			t.Errorf("%v: a root on server 9: %v", kind, rep.Err())
		}
		// A pointer beyond the memory that the server has given out.
		r.change(r.leaf(), func(h *layout.Header) { h.Sibling = layout.At(1, r.next[1]) })
		cfg = r.config()
		cfg.End = func(server int) (uint64, error) { return r.next[server] - 8, nil }
		if rep := must(t, cfg); !rep.Has(check.Unallocated) {
			t.Errorf("%v: %v", kind, rep.Err())
		}
	}
}

// The levels of a tree are at most 32 above the leaves.
func TestHighestRoot(t *testing.T) {
	for level, want := range map[int]check.Kind{32: check.Dangling, 33: check.BadLevel} {
		r := newRig(t, layout.Hardened, 1)
		r.change(r.root, func(h *layout.Header) { h.Level = level })
		if rep := must(t, r.config()); !rep.Has(want) || rep.Has(check.BadLevel) != (level > 32) {
			t.Errorf("level %d: %v", level, rep.Err())
		}
	}
}

// Locks are counted; those of dead owners are a problem above their limit, which names the lock
// word.
func TestLocksOfDeadOwners(t *testing.T) {
	lock := func(i int, alive bool) check.Lock {
		return check.Lock{Server: i % 2, Index: 5 + i, Tag: layout.MakeTag(3, uint32(i)), Alive: alive}
	}
	for _, c := range []struct{ limit, dead, wrong int }{{0, 0, 0}, {0, 1, 1}, {1, 1, 0}, {1, 2, 1}, {2, 2, 0}, {2, 5, 3}, {-1, 5, 0}} {
		r := newRig(t, layout.Hardened, 100)
		r.locks = []check.Lock{lock(100, true), lock(101, true)}
		for i := range c.dead {
			r.locks = append(r.locks, lock(i, false))
		}
		cfg := r.config()
		cfg.DeadLocks = c.limit
		rep := must(t, cfg)
		if rep.Locked != c.dead+2 || rep.Dead != c.dead || rep.Wrong != c.wrong {
			t.Errorf("%+v: %d held, %d of dead owners, %d problems", c, rep.Locked, rep.Dead, rep.Wrong)
		}
		if c.wrong > 0 {
			last := rep.Problems[len(rep.Problems)-1]
			i := c.dead - 1
			if last.Kind != check.DeadLock || last.At != layout.At(i%2, uint64(8*(5+i))) {
				t.Errorf("%+v: %v", c, last)
			}
		}
	}
}

// Visit sees each record whose key its page covers, once, and what Visit refuses is a problem of
// that page.
func TestVisit(t *testing.T) {
	for _, kind := range kinds {
		r := newRig(t, kind, 1000)
		refused := r.page(r.leaf()).Lowest
		cfg := r.config()
		var keys []uint64
		cfg.Visit = func(key uint64, _ []byte) error {
			if keys = append(keys, key); key == refused {
				return errors.New("a wrong value")
			}
			return nil
		}
		rep := must(t, cfg)
		if rep.Wrong != 1 || rep.Problems[0].Kind != check.Value || rep.Problems[0].At != r.leaf() || !slices.Contains(keys, refused) || len(keys) != 1000 {
			t.Errorf("%v: %d keys, %v", kind, len(keys), rep.Err())
		}
	}
	// A key that belongs to the page on the right is visited there alone.
	r := newRig(t, layout.Published, 1000)
	p := r.page(r.leaf())
	p.Put(p.FreeSlot(), p.Highest, value(p.Highest))
	seen := 0
	cfg := r.config()
	cfg.Visit = func(key uint64, _ []byte) error {
		if key == p.Highest {
			seen++
		}
		return nil
	}
	if rep := must(t, cfg); seen != 1 || !rep.Has(check.OutOfRange) {
		t.Errorf("key %d was visited %d times; %v", p.Highest, seen, rep.Err())
	}
}
