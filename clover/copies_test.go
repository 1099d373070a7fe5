package clover_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/meta"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/store/kv"
)

const threeServers = `
name: clover
hosts:
  - {name: md0, role: metadata}
  - {name: "ms[0-2]", role: memory}
  - {name: "cn[0-2]", role: compute}
`

// requests counts a client's requests of one-sided verbs at the switch: WRITEs of nodes, CMP_SWAPs, and
// READs of nodes and of shortcuts.
type requests struct {
	simnet.Node
	from                            func() netip.Addr
	writes, swaps, reads, shortcuts int
}

func (q *requests) Frame(now clock.Time, port int, f packetio.Frame, out *packetio.Batch) {
	var g wire.Frame
	if wire.ParseFrame(f.Data, &g) == nil && netip.AddrFrom4(g.IPv4.Src) == q.from() {
		switch op := g.BTH.Opcode; {
		case op == wire.RCWriteOnly && g.RETH.Length >= layout.MinSlab:
			q.writes++
		case op == wire.RCCmpSwap:
			q.swaps++
		case op == wire.RCReadRequest && g.RETH.Length >= layout.MinSlab:
			q.reads++
		case op == wire.RCReadRequest && g.RETH.Length == layout.ShortcutLen:
			q.shortcuts++
		}
	}
	q.Node.Frame(now, port, f, out)
}

func (q *requests) reset() { q.writes, q.swaps, q.reads, q.shortcuts = 0, 0, 0, 0 }

// What a PUT and a GET cost with one, two and three copies: R+1 and 1 round trips, 2R and 2 requests.
// The published PUT with copies has 3 round trips, and 3R+1 requests: R WRITEs of the node and a
// CMP_SWAP that locks, R WRITEs of pointers, and R WRITEs that commit them.
func TestBestCaseWithCopies(t *testing.T) {
	for replicas := 1; replicas <= 3; replicas++ {
		q := &requests{from: func() (a netip.Addr) { return a }}
		opt := simrack.Options{Wrap: atSwitch(func(n simnet.Node) simnet.Node { q.Node = n; return q })}
		g := newRigOf(t, threeServers, opt, meta.Config{Format: layout.Hardened, Keys: 64, Replicas: replicas}, region)
		q.from = g.Host("cn0").Addr
		g.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
			if err := c.Insert(1, value(1, 0, 1000), soon(rt)); err != nil {
				return err
			}
			for n := 1; n < 30; n++ {
				q.reset()
				if err := c.Put(1, value(1, n, 1000), soon(rt)); err != nil {
					return err
				}
				if c.Last().RPCs > 0 || n < 15 {
					continue // connects, or gets nodes
				}
				if want := (kv.Cost{RTTs: replicas + 1}); c.Last() != want || q.writes != replicas || q.swaps != replicas {
					t.Errorf("%d copies, PUT: %+v, %+v", replicas, c.Last(), q)
				}
				q.reset()
				if _, err := c.Get(1, nil, soon(rt)); err != nil {
					return err
				}
				if c.Last() != (kv.Cost{RTTs: 1}) || q.reads != 1 || q.shortcuts != 1 {
					t.Errorf("%d copies, GET: %+v, %+v", replicas, c.Last(), q)
				}
			}
			return nil
		})
		g.run()
	}
}

// copyStory is a store with copies on three servers, and what its keys must be.
type copyStory struct {
	*rig
	want map[uint64][]byte
}

func newCopyStory(t *testing.T, replicas int) *copyStory {
	cfg := meta.Config{Format: layout.Hardened, Keys: 64, Replicas: replicas, Lease: 200 * time.Millisecond, Grace: 200 * time.Millisecond}
	return &copyStory{newRigOf(t, threeServers, simrack.Options{}, cfg, region), map[uint64][]byte{}}
}

// write inserts or replaces all keys.
func (y *copyStory) write(c *clover.Client, rt verbs.Runtime, n int) error {
	for key := uint64(1); key <= 20; key++ {
		v := value(key, n, 40)
		err := c.Put(key, v, soon(rt))
		if errors.Is(err, kv.ErrNotFound) {
			err = c.Insert(key, v, soon(rt))
		}
		if err != nil {
			return fmt.Errorf("write %d of key %d: %w", n, key, err)
		}
		y.want[key] = v
	}
	return nil
}

// read compares all keys. lost counts those that are lost.
func (y *copyStory) read(c *clover.Client, rt verbs.Runtime) (lost int, err error) {
	for key := uint64(1); key <= 20; key++ {
		switch v, err := c.Get(key, nil, soon(rt)); {
		case errors.Is(err, kv.ErrLost):
			lost++
		case err != nil || !bytes.Equal(v, y.want[key]):
			return lost, fmt.Errorf("key %d is %.10q, want %.10q: %w", key, v, y.want[key], err)
		}
	}
	return lost, nil
}

// readByNewClient lets a new client on a host read all keys. It knows no locations yet, so it finds what the
// metadata server and its directory say.
func (y *copyStory) readByNewClient(host string, rt verbs.Runtime) error {
	var err error
	done := false
	h := y.Host(host)
	h.Go("reader", false, func(ctx verbs.Context) {
		defer func() { done = true }()
		var c *clover.Client
		if c, err = clover.Open(clover.Config{Context: ctx, Manager: h.Manager(ctx), Meta: y.Host("md0").Addr()}, soon(ctx.Runtime())); err != nil {
			return
		}
		lost := 0
		if lost, err = y.read(c, ctx.Runtime()); lost > 0 {
			err = errors.Join(err, fmt.Errorf("%d keys lost for a new client", lost))
		}
		err = errors.Join(err, c.Close())
	})
	for !done {
		rt.Sleep(time.Millisecond)
	}
	return err
}

// crash crashes a memory server, and waits until the store does not count its copies.
func (y *copyStory) crash(name string, rt verbs.Runtime) {
	y.Host(name).Crash()
	for y.server.Snapshot().Away == 0 {
		rt.Sleep(time.Millisecond)
	}
}

// restart starts a memory server again, and waits until all copies are whole.
func (y *copyStory) restart(name string, rt verbs.Runtime) {
	y.Host(name).Restart()
	y.memory(name)
	for y.server.Snapshot().Away > 0 {
		rt.Sleep(time.Millisecond)
	}
}

// Every acknowledged value is there while R-1 of the memory servers are away, can be replaced
// meanwhile, and is on the servers again when they are back: each server crashes in turn.
func TestCopiesSurviveCrashes(t *testing.T) {
	for replicas := 2; replicas <= 3; replicas++ {
		y := newCopyStory(t, replicas)
		y.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
			for n := range 3 {
				if err := y.write(c, rt, 10*n); err != nil {
					return err
				}
				names := []string{fmt.Sprintf("ms%d", n), fmt.Sprintf("ms%d", (n+1)%3)}[:replicas-1]
				for i, name := range names {
					y.crash(name, rt)
					if lost, err := y.read(c, rt); lost > 0 || err != nil {
						return fmt.Errorf("%d copies, %v has crashed: %d keys lost, %w", replicas, names[:i+1], lost, err)
					}
					if err := y.write(c, rt, 10*n+i+1); err != nil {
						return err
					}
				}
				for _, name := range names {
					y.Host(name).Restart()
					y.memory(name)
				}
				for y.server.Snapshot().Away > 0 {
					rt.Sleep(time.Millisecond)
				}
			}
			lost, err := y.read(c, rt)
			if lost > 0 {
				t.Errorf("%d copies: %d keys lost in the end", replicas, lost)
			}
			return err
		})
		y.run()
		if st := y.server.Snapshot(); st.LostKeys > 0 || st.Broken > 0 {
			t.Errorf("%+v", st)
		}
	}
}

// When all servers with copies of a node lose their memory, its key is lost and says so, until it is
// inserted again.
func TestKeysWithoutACopyAreLost(t *testing.T) {
	y := newCopyStory(t, 2)
	y.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
		if err := y.write(c, rt, 1); err != nil {
			return err
		}
		for _, name := range []string{"ms1", "ms2"} {
			y.Host(name).Crash()
		}
		rt.Sleep(time.Millisecond)
		for _, name := range []string{"ms1", "ms2"} {
			y.restart(name, rt)
		}
		lost, err := y.read(c, rt)
		if lost == 0 || lost == 20 {
			t.Errorf("%d keys lost: want those whose nodes were on ms1 and ms2", lost)
		}
		if err != nil {
			return err
		}
		for key := range y.want {
			if err := c.Insert(key, y.want[key], soon(rt)); err != nil && !errors.Is(err, kv.ErrExists) {
				return err
			}
		}
		if lost, err = y.read(c, rt); lost > 0 {
			t.Errorf("%d keys lost after they were inserted again", lost)
		}
		return err
	})
	y.run()
}

// A metadata server that restarts finds all keys, though a memory server has lost its memory
// meanwhile, or was out and has old copies.
func TestCopiesSurviveTheMetadataServer(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		for i := range 3 {
			y := newCopyStory(t, 2)
			y.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
				if err := y.write(c, rt, 1); err != nil {
					return err
				}
				ms := y.Host(fmt.Sprintf("ms%d", i))
				if hangs {
					ms.HangAll()
					for y.server.Snapshot().Away == 0 {
						rt.Sleep(time.Millisecond)
					}
					if err := y.write(c, rt, 2); err != nil {
						return err
					}
				}
				y.Host("md0").Crash()
				if hangs {
					ms.ResumeAll()
				} else {
					ms.Crash()
					ms.Restart()
					y.memory(ms.Spec.Name)
				}
				rt.Sleep(10 * time.Millisecond)
				y.Host("md0").Restart()
				y.meta()
				lost, err := y.read(c, rt)
				if lost > 0 {
					t.Errorf("hangs %v, server %d: %d keys lost", hangs, i, lost)
				}
				if err == nil {
					err = y.readByNewClient("cn1", rt)
				}
				if err == nil {
					err = y.write(c, rt, 3)
				}
				return err
			})
			y.run()
		}
	}
}

// All copies of some keys and of their records are lost: ms0 is out when ms1 loses its memory. The
// metadata server crashes at the same moment, so it learns of these keys by their mirrors alone. They
// are lost until they are inserted again; "not found" would mean that they never existed. The same
// happens a second time, when the restarted metadata server has written the mirrors again.
func TestAKeyWithoutARecordIsLost(t *testing.T) {
	const deleted = 21
	y := newCopyStory(t, 2)
	y.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
		for n := range 2 {
			for key := uint64(1); key <= deleted; key++ {
				y.want[key] = value(key, n, 40)
				if err := c.Insert(key, y.want[key], soon(rt)); err != nil && !errors.Is(err, kv.ErrExists) {
					return err
				}
			}
			if err := c.Delete(deleted, soon(rt)); err != nil {
				return err
			}
			rt.Sleep(time.Second) // the tombstone is reported, and the record erased
			y.Host("ms0").HangAll()
			for y.server.Snapshot().Away == 0 {
				rt.Sleep(time.Millisecond)
			}
			if err := y.write(c, rt, 10*n+2); err != nil {
				return err
			}
			y.Host("md0").Crash()
			y.Host("ms1").Crash()
			y.Host("ms0").ResumeAll()
			y.Host("ms1").Restart()
			y.memory("ms1")
			y.Host("md0").Restart()
			y.meta()
			if v, err := c.Get(deleted, nil, soon(rt)); !errors.Is(err, kv.ErrNotFound) {
				return fmt.Errorf("a deleted key: %.10q, %w", v, err)
			}
			if lost, err := y.read(c, rt); lost == 0 || lost == 20 || err != nil {
				return fmt.Errorf("%d keys lost: want those whose copies were on ms0 and ms1: %w", lost, err)
			}
		}
		return nil
	})
	y.run()
}
