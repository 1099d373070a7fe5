package fusee_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/store/kv"
)

// audit checks that the table is right, that no change is open, and that no client owns a block.
func (g *rig) audit(super layout.Superblock, what string) fusee.Report {
	g.t.Helper()
	out, err := fusee.Audit(super, func(server int, off uint64, n int) ([]byte, error) { return g.memory[server][off:][:n], nil })
	if err != nil || len(out.Defects) > 0 || out.Unfinished > 0 || len(out.Owners) > 0 {
		g.t.Errorf("%s: %+v, %v", what, out, err)
	}
	return out
}

// Clients that come and go, each of which changes a few keys, need no more memory than the keys:
// each leaves its blocks to the next ones, also to those with objects of another length. What they
// have stored remains.
func TestClientsThatCloseLeaveTheirBlocks(t *testing.T) {
	for _, s := range stores {
		g := newRig(t, s.servers, simrack.Options{})
		f := s.FormatConfig
		f.Block = 16 << 10
		g.format(f)
		const clients, keys = 300, 7
		want := map[uint64]int{}
		var super layout.Superblock
		h := g.Host("cn0")
		h.Go("clients", false, func(ctx verbs.Context) {
			rt := ctx.Runtime()
			for n := range clients {
				c, err := fusee.Open(g.config(h, ctx), soon(rt))
				if err != nil {
					t.Error(err)
					return
				}
				super = c.Super()
				key := uint64(n % keys)
				v := kv.MakeValue(key, uint64(n), 100+n/50%3*500)
				if err = c.Put(key, v, soon(rt)); errors.Is(err, kv.ErrNotFound) {
					err = c.Insert(key, v, soon(rt))
				}
				if want[key] = n; n%20 == 19 {
					err = errors.Join(err, c.Delete(key, soon(rt)))
					delete(want, key)
				}
				for key, n := range want {
					if got, err := c.Get(key, nil, soon(rt)); err != nil || string(got) != string(kv.MakeValue(key, uint64(n), 100+n/50%3*500)) {
						t.Errorf("client %d: GET %d: %x, %v", n, key, got, err)
					}
				}
				if err := errors.Join(err, c.Close()); err != nil {
					t.Errorf("client %d: %v", n, err)
					return
				}
			}
		})
		g.run()
		out := g.audit(super, name(s.servers, f))
		taken := 0
		for _, n := range out.Taken {
			taken += n
		}
		if taken > 4 || out.Left != taken || out.Keys != len(want) {
			t.Errorf("%s: %d blocks taken, %d left, %d keys; want at most 4 blocks, and %d keys", name(s.servers, f), taken, out.Left, out.Keys, len(want))
		}
	}
}

// Of all objects of blocks that clients have left, each is named by a slot, or a later client finds
// it: also those that others have freed meanwhile.
func TestNoObjectOfALeftBlockIsLost(t *testing.T) {
	g := newRig(t, 1, simrack.Options{})
	g.format(fusee.FormatConfig{Groups: 900, Block: 16 << 10})
	const keys, objects = 150, 63 // of a block
	var super layout.Superblock
	stage := 0
	g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
		super = c.Super()
		for key := range uint64(keys) {
			if err := c.Insert(key, kv.MakeValue(key, 1, 100), soon(rt)); err != nil {
				return err
			}
		}
		stage = 1
		return nil
	})
	g.client("cn1", func(c *fusee.Client, rt verbs.Runtime) error {
		for stage < 1 {
			rt.Sleep(time.Microsecond)
		}
		for key := range uint64(keys) { // the first client closes meanwhile
			if err := c.Put(key, kv.MakeValue(key, 2, 100), soon(rt)); err != nil {
				return err
			}
		}
		return nil
	})
	g.run()
	g.audit(super, "two clients")
	g.client("cn2", func(c *fusee.Client, rt verbs.Runtime) error {
		for n := uint64(keys); ; n++ {
			if err := c.Insert(n, kv.MakeValue(n, 1, 100), soon(rt)); errors.Is(err, kv.ErrFull) {
				return nil
			} else if err != nil {
				return fmt.Errorf("key %d: %w", n, err)
			}
		}
	})
	g.run()
	out := g.audit(super, "a third one")
	if want := super.Shape.Blocks * objects; out.Taken[0] != super.Shape.Blocks || out.Keys != want {
		t.Errorf("%d keys in %d of %d blocks, want %d", out.Keys, out.Taken[0], super.Shape.Blocks, want)
	}
}

// killer ends the applications of a host when the host has sent a number of requests: left counts
// down to it.
type killer struct {
	g     *rig
	host  string
	left  int
	nic   bool
	armed bool
	frame wire.Frame
}

func (k *killer) see(ev *simnet.Event) {
	if !k.armed || k.left == 0 || ev.Kind != simnet.Sent || ev.Link() != k.host || ev.Dir() != fault.Up || wire.ParseFrame(ev.Frame, &k.frame) != nil ||
		k.frame.BTH.DestQP <= 1 || k.frame.BTH.Opcode.Info().Flags&wire.OpRequest == 0 {
		return
	}
	if k.left--; k.left == 0 {
		k.g.At(k.g.Now(), func() {
			if h := k.g.Host(k.host); k.nic {
				h.Crash()
			} else {
				h.CrashApps()
			}
		})
	}
}

// A client dies after each of the requests of an operation. Another one then changes the same key,
// and inserts it if it is not there; no operation waits for longer than the lease allows. When the
// number of the dead client was recovered, it has no block, no change is open, and the key has one
// slot.
func TestAClientDiesAtEveryVerb(t *testing.T) {
	for _, s := range stores {
		for op := range 3 {
			died := 0
			for after := 1; ; after++ {
				dead := dieAt(t, s.servers, s.FormatConfig, op, after, after%2 == 0)
				if !dead {
					break
				}
				died++
			}
			if died < 4 {
				t.Errorf("%s, operation %d: the client died %d times", name(s.servers, s.FormatConfig), op, died)
			}
			t.Logf("%s, operation %d: %d requests", name(s.servers, s.FormatConfig), op, died)
		}
	}
}

func dieAt(t *testing.T, servers int, f fusee.FormatConfig, op, after int, nic bool) (dead bool) {
	t.Helper()
	k := &killer{host: "cn0", left: after, nic: nic}
	g := newRig(t, servers, simrack.Options{Trace: k.see})
	k.g, f.Block = g, 16<<10
	f.Groups = 2
	g.format(f)
	g.lease = time.Millisecond
	const key = 5
	what := fmt.Sprintf("%s, operation %d, request %d", name(servers, f), op, after)
	done, number, old := false, uint32(0), []byte(nil)
	var super layout.Superblock
	g.client("cn1", func(c *fusee.Client, rt verbs.Runtime) error { // the old value is in a block of a living client
		super = c.Super()
		if op > 0 {
			old = kv.MakeValue(key, 1, 100)
			return c.Insert(key, old, soon(rt))
		}
		return nil
	})
	g.run()
	mine, keys := kv.MakeValue(key, 2, 300), 3
	g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
		number = c.Number()
		for key := range uint64(2) { // it has objects of both lengths
			if err := c.Insert(100+key, kv.MakeValue(100, 1, 100+200*int(key)), soon(rt)); err != nil {
				return err
			}
		}
		k.armed = true
		var err error
		switch op {
		case 0:
			err = c.Insert(key, mine, soon(rt))
		case 1:
			err = c.Put(key, mine, soon(rt))
		default:
			err = c.Delete(key, soon(rt))
		}
		k.armed, done = false, true
		return err
	})
	g.run()
	if done {
		return false
	}
	g.client("cn2", func(c *fusee.Client, rt verbs.Runtime) error {
		rt.Sleep(time.Millisecond)
		got, err := c.Get(key, nil, soon(rt))
		switch {
		case err == nil && (string(got) == string(old) || string(got) == string(mine)):
		case errors.Is(err, kv.ErrNotFound) && op != 1:
		default:
			return fmt.Errorf("%s: GET: %x, %w", what, got, err)
		}
		v := kv.MakeValue(key, 3, 40)
		deadline := rt.Now().Add(100 * time.Millisecond)
		if err := c.Put(key, v, deadline); errors.Is(err, kv.ErrNotFound) {
			if err := c.Insert(key, v, deadline); err != nil {
				return fmt.Errorf("%s: INSERT: %w", what, err)
			}
		} else if err != nil {
			return fmt.Errorf("%s: PUT: %w", what, err)
		}
		if err := c.Recover(number, soon(rt)); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		got, err = c.Get(key, nil, soon(rt))
		switch { // the dead client's operation may come after the PUT, which has lost against it
		case err == nil && (string(got) == string(v) || op == 1 && string(got) == string(mine)):
		case errors.Is(err, kv.ErrNotFound) && op == 2:
			keys--
		default:
			return fmt.Errorf("%s: GET of the new value: %x, %w", what, got, err)
		}
		return nil
	})
	g.run()
	if out := g.audit(super, what); out.Keys != keys {
		t.Errorf("%s: %d keys, want %d", what, out.Keys, keys)
	}
	return true
}

// Objects that a client has replaced and not freed when it died are found by their owner, which
// needs no further block for them.
func TestFreesOfADeadClientAreFound(t *testing.T) {
	g := newRig(t, 2, simrack.Options{})
	g.format(fusee.FormatConfig{Groups: 40, Replicas: 1, Block: 16 << 10})
	g.ahead = -1
	const keys, objects = 40, 63 // of a block
	var victim *fusee.Client
	dead, stage := uint32(0), 0
	g.client("cn1", func(c *fusee.Client, rt verbs.Runtime) error {
		for key := range uint64(keys) {
			if err := c.Insert(key, kv.MakeValue(key, 1, 100), soon(rt)); err != nil {
				return err
			}
		}
		for stage = 1; stage < 2; {
			rt.Sleep(time.Microsecond)
		}
		g.At(g.Now(), func() { g.Host("cn0").CrashApps() })
		rt.Sleep(time.Millisecond)
		if err := c.Recover(dead, soon(rt)); err != nil {
			return err
		}
		for n := range uint64(objects - 1) { // all of them are free
			if err := c.Insert(1000+n, kv.MakeValue(1000+n, 1, 100), soon(rt)); err != nil {
				return err
			}
		}
		if out, err := c.Audit(soon(rt)); err != nil || out.Owners[c.Number()] != 1 || out.Owners[dead] != 0 {
			t.Errorf("after a recovery: %+v, %v; want one block of client %d and none of client %d", out, err, c.Number(), dead)
		}
		return nil
	})
	g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
		for victim = c; stage < 1; {
			rt.Sleep(time.Microsecond)
		}
		for key := range uint64(keys) {
			if err := c.Put(key, kv.MakeValue(key, 2, 100), soon(rt)); err != nil {
				return err
			}
		}
		for dead, stage = victim.Number(), 2; ; {
			rt.Sleep(time.Second)
		}
	})
	g.run()
}

// A free that was decided when a block had another owner, and arrives when the object is in use
// again, frees nothing.
func TestALateFreeOfAnEarlierOwner(t *testing.T) {
	g := newRig(t, 1, simrack.Options{})
	g.format(fusee.FormatConfig{Groups: 40, Block: 16 << 10})
	const key, objects = 7, 63 // of a block
	var super layout.Superblock
	stage := 0
	upTo := func(rt verbs.Runtime, n int) {
		for stage < n {
			rt.Sleep(time.Microsecond)
		}
	}
	g.client("cn1", func(c *fusee.Client, rt verbs.Runtime) error {
		err := c.Insert(key, kv.MakeValue(key, 1, 100), soon(rt))
		stage = 1
		upTo(rt, 2)
		return err
	})
	g.client("cn2", func(c *fusee.Client, rt verbs.Runtime) error {
		upTo(rt, 1)
		err := c.Put(key, kv.MakeValue(key, 2, 100), soon(rt)) // its free waits for others
		stage = 2
		upTo(rt, 3)
		return err
	})
	g.client("cn3", func(c *fusee.Client, rt verbs.Runtime) error {
		super = c.Super()
		upTo(rt, 2)
		rt.Sleep(time.Millisecond) // the first client has closed
		for n := range uint64(objects) {
			if err := c.Insert(1000+n, kv.MakeValue(1000+n, 1, 100), soon(rt)); err != nil {
				return err
			}
		}
		stage = 3
		rt.Sleep(time.Millisecond) // the second one has, too: its free has arrived
		for n := range uint64(2 * objects) {
			if err := c.Insert(2000+n, kv.MakeValue(2000+n, 1, 100), soon(rt)); err != nil {
				return err
			}
		}
		for n := range uint64(2 * objects) {
			for _, key := range []uint64{1000 + n%objects, 2000 + n} {
				if got, err := c.Get(key, nil, soon(rt)); err != nil || string(got) != string(kv.MakeValue(key, 1, 100)) {
					t.Errorf("GET %d: %x, %v", key, got, err)
				}
			}
		}
		return nil
	})
	g.run()
	g.audit(super, "after a late free")
}

// A client that was taken for dead takes another number, and goes on. Its former number has no
// block any more.
func TestAClientThatWasTakenForDeadGoesOn(t *testing.T) {
	g := newRig(t, 2, simrack.Options{})
	g.format(fusee.FormatConfig{Groups: 8, IndexReplicas: 2, Block: 16 << 10})
	var a *fusee.Client
	var super layout.Superblock
	recovered := false
	v := kv.MakeValue(1, 1, 100)
	g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
		super = c.Super()
		if err := c.Insert(1, v, soon(rt)); err != nil {
			return err
		}
		was := c.Number()
		for a = c; !recovered; {
			rt.Sleep(time.Microsecond)
		}
		if err := c.Put(1, v, soon(rt)); err != nil { // it has changed nothing when it finds the fence, and begins again
			return fmt.Errorf("the first operation after the fence: %w", err)
		}
		if err := errors.Join(c.Put(1, kv.MakeValue(1, 2, 100), soon(rt)), c.Insert(2, v, soon(rt)), c.Delete(2, soon(rt))); err != nil {
			return err
		}
		if c.Number() == was {
			t.Error("it has its former number")
		}
		return nil
	})
	g.client("cn1", func(c *fusee.Client, rt verbs.Runtime) error {
		for a == nil {
			rt.Sleep(time.Microsecond)
		}
		err := c.Recover(a.Number(), soon(rt))
		recovered = true
		return err
	})
	g.run()
	if out := g.audit(super, "after it"); out.Keys != 1 {
		t.Errorf("%d keys", out.Keys)
	}
}

// A client dies with blocks, and no other waits for it: RecoverAll leaves its blocks to others. A client
// that is alive loses its blocks, too, and goes on with another number.
func TestAllOwnersAreRecovered(t *testing.T) {
	g := newRig(t, 2, simrack.Options{})
	g.format(fusee.FormatConfig{Groups: 8, IndexReplicas: 2, Block: 16 << 10})
	var super layout.Superblock
	var numbers []uint32
	recovered := false
	for i, host := range []string{"cn0", "cn1"} {
		g.client(host, func(c *fusee.Client, rt verbs.Runtime) error {
			key := uint64(i)
			if err := c.Insert(key, kv.MakeValue(key, 1, 100), soon(rt)); err != nil {
				return err
			}
			numbers = append(numbers, c.Number())
			for !recovered {
				rt.Sleep(time.Microsecond)
			}
			if _, err := c.Get(key, nil, soon(rt)); err != nil && !errors.Is(err, kv.ErrTimeout) {
				return err
			}
			return c.Put(key, kv.MakeValue(key, 2, 100), soon(rt))
		})
	}
	g.client("cn2", func(c *fusee.Client, rt verbs.Runtime) error {
		for super = c.Super(); len(numbers) < 2; {
			rt.Sleep(time.Microsecond)
		}
		g.At(g.Now(), func() { g.Host("cn0").CrashApps() })
		rt.Sleep(time.Millisecond)
		if err := c.Insert(99, kv.MakeValue(99, 1, 100), soon(rt)); err != nil {
			return err
		}
		got, err := c.RecoverAll(soon(rt))
		slices.Sort(numbers)
		if slices.Sort(got); err != nil || !slices.Equal(got, numbers) {
			t.Errorf("recovered: %v, %v; want %v", got, err, numbers)
		}
		out, err := c.Audit(soon(rt))
		if len(out.Owners) != 1 || out.Owners[c.Number()] != 1 || out.Left != 2 {
			t.Errorf("after it: %+v; want one block of client %d, and two that are left", out, c.Number())
		}
		recovered = true
		return err
	})
	g.run()
	if out := g.audit(super, "at the end"); out.Keys != 3 {
		t.Errorf("%d keys", out.Keys)
	}
}
