package meta

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
	tree "github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/softrnic/remotemem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// When a server's connections end, a bulk transfer connects again and goes on, unless the server is
// another incarnation or does not answer.
func TestTransferOverANewConnection(t *testing.T) {
	withMemory(t, 2, nil, func(r *pair, s *Server, rt verbs.Runtime) {
		at, want := s.mem.space.RegionLen()/2, bytes.Repeat([]byte{1, 2, 3, 4, 5}, bulkLen/4)
		_ = s.mem.breakWays(1)
		if err := s.mem.writeBulk(1, at, want); err != nil {
			t.Error(err)
		}
		_ = s.mem.breakWays(1)
		if got, err := s.mem.readBulk(1, at, len(want)); err != nil || !bytes.Equal(got, want) {
			t.Error(err)
		}
		r.crash(s, 1)
		began := rt.Now()
		if _, err := s.mem.readBulk(1, at, 8); err == nil || rt.Now() < began.Add(memoryTimeout) || rt.Now() > began.Add(memoryTimeout+reachTimeout) {
			t.Errorf("no server: %v after %v", err, rt.Now().Sub(began))
		}
		r.restart(1, rt)
		began = rt.Now()
		if err := s.mem.writeBulk(1, at, want); !errors.Is(err, errDown) || s.mem.connected(1) || rt.Now() > began.Add(reachTimeout) {
			t.Errorf("another incarnation: %v after %v, connected %v", err, rt.Now().Sub(began), s.mem.connected(1))
		}
		if err := s.mem.openWays(1, s.mem.deadline()); err != nil {
			t.Error(err)
		}
		if got, err := s.mem.readBulk(1, at, 8); err != nil || !bytes.Equal(got, make([]byte, 8)) {
			t.Errorf("the other incarnation has %v, %v", got, err)
		}
	})
}

// When an operation fails, transfer repeats it with a shorter piece over a new connection. Pieces
// do not become shorter than so many bytes.
func TestPiecesOfATransfer(t *testing.T) {
	withMemory(t, 2, nil, func(_ *pair, s *Server, rt verbs.Runtime) {
		var lengths []int
		p := pieces{left: bulkLen + 100}
		err := s.mem.transfer(1, &p, func(o *remotemem.Op) error {
			to := s.mem.memory[1].target(0, 0)
			if lengths = append(lengths, p.n); len(lengths) < 6 {
				to.RKey++ // the server refuses it, and the connection ends
			}
			s.mem.fab.Read(o, to, bulkAt, p.n)
			return nil
		})
		if err != nil || !slices.Equal(lengths, []int{bulkLen, bulkLen / 4, bulkLen / 16, bulkLen / 64, smallestPiece, smallestPiece}) || !s.mem.connected(1) {
			t.Errorf("pieces of %v bytes, %v", lengths, err)
		}
		p.next()
		if p.begin(); p.at != smallestPiece || p.n != smallestPiece || p.left != bulkLen+100-smallestPiece {
			t.Errorf("%+v", p)
		}
		p = pieces{at: bulkLen, left: 100}
		if p.begin(); p.n != 100 {
			t.Errorf("%+v", p)
		}
		began, failure := rt.Now(), errors.New("failure")
		if err := s.mem.transfer(1, &p, func(*remotemem.Op) error { return failure }); !errors.Is(err, failure) || rt.Now() != began {
			t.Errorf("%v after %v", err, rt.Now().Sub(began))
		}
		n := 0
		s.mem.deposed = true // it does not try again
		err = s.mem.transfer(1, &p, func(o *remotemem.Op) error {
			to := s.mem.memory[1].target(0, 0)
			to.RKey++
			s.mem.fab.Read(o, to, bulkAt, 8)
			n++
			return nil
		})
		if err == nil || n != 1 {
			t.Errorf("deposed: %d attempts, %v", n, err)
		}
	})
}

// What a superblock says of a server that is connected again: the store's memory, lost memory, or
// another metadata server.
func TestSuperblockAfterAConnection(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(s *Server) error
		want    error
		deposed bool
	}{
		"as before":          {func(*Server) error { return nil }, nil, false},
		"empty":              {func(s *Server) error { return s.mem.writeBulk(1, 0, make([]byte, layout.SuperblockLen)) }, errLost, false},
		"another generation": {func(s *Server) error { s.mem.memory[1].generation++; return nil }, errLost, false},
		"another server's": {func(s *Server) error {
			b, err := s.mem.readBulk(0, 0, layout.SuperblockLen)
			return errors.Join(err, s.mem.writeBulk(1, 0, b))
		}, errLost, false},
		"another store":        {func(s *Server) error { s.mem.store++; return nil }, errDeposed, true},
		"a later incarnation":  {func(s *Server) error { s.mem.owner--; s.mem.written--; return nil }, errDeposed, true},
		"its own later number": {func(s *Server) error { s.mem.owner--; return nil }, nil, false},
	} {
		withMemory(t, 2, nil, func(_ *pair, s *Server, _ verbs.Runtime) {
			err := c.change(s)
			_ = s.mem.breakWays(1)
			if got := errors.Join(err, s.mem.reach(1)); !errors.Is(got, c.want) || (got == nil) != (c.want == nil) || s.mem.deposed != c.deposed || s.mem.memory[1].blank != errors.Is(c.want, errLost) {
				t.Errorf("%s: %v, deposed %v, blank %v", name, got, s.mem.deposed, s.mem.memory[1].blank)
			}
		})
	}
	withMemory(t, 2, withCopies, func(_ *pair, s *Server, _ verbs.Runtime) {
		s.mem.memory[1].generation++
		_ = s.mem.breakWays(1)
		if err := s.mem.reach(1); !errors.Is(err, errDown) || errors.Is(err, errLost) || !s.mem.memory[1].blank {
			t.Errorf("with copies: %v, blank %v", err, s.mem.memory[1].blank)
		}
		for _, m := range []memory{{blank: true}, {out: true}} {
			s.mem.memory[0].blank, s.mem.memory[0].out = m.blank, m.out
			if err := s.mem.reach(0); !errors.Is(err, errDown) {
				t.Errorf("with copies, blank %v, out %v: %v", m.blank, m.out, err)
			}
		}
	})
}

// Before a metadata server takes memory for its own, it makes sure that nothing else is there.
func TestWhatIsInMemory(t *testing.T) {
	for name, c := range map[string]struct {
		change      func(s *Server) error
		fresh       bool
		whole       bool
		want        string // part of the error
		generations int
	}{
		"a store":         {change: func(*Server) error { return nil }, whole: true, generations: 2},
		"a part of it":    {change: func(s *Server) error { return s.mem.writeBulk(0, 0, make([]byte, layout.SuperblockLen)) }, whole: true, generations: 1},
		"of other copies": {change: func(s *Server) error { s.mem.cfg.Replicas = 2; return nil }, want: "holds a store with 1 copies"},
		"of other copies, to be formatted": {
			change: func(s *Server) error { s.mem.cfg.Replicas = 2; return nil }, fresh: true, whole: true,
		},
		"a tree":                  {change: putTree, want: "holds a Sherman tree"},
		"a tree, to be formatted": {change: putTree, fresh: true, whole: true},
	} {
		withMemory(t, 2, nil, func(_ *pair, s *Server, _ verbs.Runtime) {
			err := c.change(s)
			owner := s.mem.owner
			s.mem.space, s.mem.owner, s.mem.cfg.Fresh = layout.Space{}, 1, c.fresh
			s.mem.memory[0].generation, s.mem.memory[1].generation = 0, 0
			s.mem.self = 0 // no number was taken yet
			whole, found := s.mem.superblocks()
			if err != nil || whole != c.whole || (found == nil) != (c.want == "") || found != nil && !strings.Contains(found.Error(), c.want) {
				t.Errorf("%s: whole %v, %v, %v", name, whole, found, err)
			}
			n := 0
			for i := range s.mem.memory {
				if s.mem.memory[i].generation != 0 {
					n++
				}
			}
			if n != c.generations || c.want == "" && s.mem.owner != owner || (s.mem.space.Servers == 2) != (c.generations > 0) {
				t.Errorf("%s: %d generations, incarnation %d, before %d, %+v", name, n, s.mem.owner, owner, s.mem.space)
			}
		})
	}
}

// putTree makes the memory of server 0 that of a Sherman tree.
func putTree(s *Server) error {
	sb := tree.Superblock{Shape: tree.Shape{Page: 1024, Value: 8}, Generation: 5, Servers: 2, Locks: 64, Chunk: 1 << 16, Len: 1 << 24}
	b := sb.AppendTo(nil)
	return errors.Join(sb.Validate(), sb.Parse(b), s.mem.writeBulk(0, 0, b))
}

// Another metadata server has served the store while this one started: a superblock has a later
// number, a later view, or another store.
func TestAnotherServerServedDuringAStart(t *testing.T) {
	for name, c := range map[string]struct {
		change func(s *Server)
		want   error
	}{
		"as before":     {func(*Server) {}, nil},
		"later number":  {func(s *Server) { s.mem.owner++ }, errBetween},
		"later view":    {func(s *Server) { s.mem.view++ }, errBetween},
		"another store": {func(s *Server) { s.mem.store++ }, errBetween},
	} {
		withMemory(t, 2, withCopies, func(_ *pair, s *Server, _ verbs.Runtime) {
			owner, view, store, generation := s.mem.owner, s.mem.view, s.mem.store, s.mem.memory[1].generation
			c.change(s)
			err := s.mem.writeOwner(1)
			s.mem.view, s.mem.store = view, store
			if got := s.compare(owner); err != nil || !errors.Is(got, c.want) || (got == nil) != (c.want == nil) || s.mem.memory[1].generation != generation {
				t.Errorf("%s: %v, want %v, %v", name, got, c.want, err)
			}
		})
	}
}

// A new store has a number, all slots, and clients whose numbers begin where the earlier ones are
// fenced. A store that is formatted again is another one, without keys.
func TestStoreThatIsFormattedAgain(t *testing.T) {
	withMemory(t, 2, nil, func(r *pair, s *Server, _ verbs.Runtime) {
		cl, n := holder(t, s, 1, 1)
		opened(t, s, cl, 1, n[0])
		store, owner := s.mem.store, s.mem.owner
		r.cfg.Fresh = true
		r.begin("md1", unwrapped, func(s *Server, _ verbs.Runtime) {
			if s.mem.store == store || s.mem.owner <= owner || s.mem.owner >= maxIncarnation || len(s.chains.keys) != 0 || s.mem.memory[0].generation == 0 || s.pool.epoch != 1 || s.mem.stats.Losses != 0 {
				t.Errorf("store %d, before %d, incarnation %d, %d keys", s.mem.store, store, s.mem.owner, len(s.chains.keys))
			}
			if s.pool.nextID != s.mem.owner<<incarnationBits || s.pool.fencedTo != s.pool.nextID || s.pool.endID != s.mem.self || s.mem.self != s.pool.nextID|ownNumber {
				t.Errorf("clients from %#x to %#x, fenced to %#x, own number %#x", s.pool.nextID, s.pool.endID, s.pool.fencedTo, s.mem.self)
			}
			if n := s.mem.space.Slots(); len(s.chains.slots) != n || s.chains.slots[0] != uint32(n-1) || s.chains.slots[n-1] != 0 {
				t.Errorf("%d slots, %d to %d", len(s.chains.slots), s.chains.slots[0], s.chains.slots[n-1])
			}
			for i := range s.mem.memory {
				first, _ := s.mem.space.Record(i)
				if err := s.members.readRecords(first, func(int, layout.KeyRecord) { t.Error("there is a record") }); err != nil {
					t.Error(err)
				}
			}
		})
	})
}

// A metadata server waits for a memory server that does not listen yet, for a limited time.
func TestStartWithoutAMemoryServer(t *testing.T) {
	r := newPair(t, 0)
	r.Host("ms1").Crash()
	ended := false
	h := r.Host("md0")
	h.Go("meta", false, func(ctx verbs.Context) {
		c, rt := r.cfg, ctx.Runtime()
		c.Context, c.Manager = ctx, h.Manager(ctx)
		began := rt.Now()
		_, err := New(c)
		if took := rt.Now().Sub(began); err == nil || took < 2*memoryTimeout || took > 2*memoryTimeout+reachTimeout {
			t.Errorf("%v after %v", err, took)
		}
		began = rt.Now()
		r.At(began.Add(memoryTimeout), func() { r.Host("ms1").Restart(); r.memory("ms1") })
		s, err := New(c)
		if took := rt.Now().Sub(began); err != nil || took < memoryTimeout || took > memoryTimeout+2*reachTimeout {
			t.Errorf("%v after %v", err, took)
		} else if s.mem.memory[1].ways[0].boot == 0 || len(s.mem.memory[1].ways) != maxWays || s.mem.memory[1].ways[0].peer == s.mem.memory[1].ways[1].peer {
			t.Errorf("%+v", s.mem.memory[1])
		}
		ended = true
	})
	if r.run(); !ended {
		t.Error("the start did not end")
	}
}
