package clover_test

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/meta"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/store/kv"
)

// newCutRig returns a rig with two copies of each node, and a function that cuts the metadata server
// off from ms0. Clients reach ms0 as before.
func newCutRig(t *testing.T, lease time.Duration) (g *rig, cut func()) {
	x := &filter{}
	opt := x.options()
	opt.Datagrams = true // the switch sees the requests to end connections, too
	g = newRigOf(t, threeServers, opt, meta.Config{Format: layout.Hardened, Keys: 64, Replicas: 2, Lease: lease, Grace: lease}, region)
	return g, func() {
		md, ms := g.Host("md0").Addr(), g.Host("ms0").Addr()
		x.drop = func(_ clock.Time, f *wire.Frame) bool {
			a, b := netip.AddrFrom4(f.IPv4.Src), netip.AddrFrom4(f.IPv4.Dst)
			return a == md && b == ms || a == ms && b == md
		}
	}
}

// keyOn0 inserts keys until one has its first copy on ms0, and returns that key.
func keyOn0(c *clover.Client, s *kv.Recorded, rt verbs.Runtime) (uint64, error) {
	for k := uint64(1); ; k++ {
		if err := s.Insert(k, s.Value(k, 40), soon(rt)); err != nil || c.Placed() == 0 {
			return k, err
		}
	}
}

// overwritten runs the rig with a client of cn1, which replaces the value of a key for a while as soon
// as there is one, and sets end. Then one memory server must be out.
func overwritten(g *rig, history *kv.History, key *uint64, lasts time.Duration, end *bool) {
	g.t.Helper()
	g.client("cn1", func(c *clover.Client, rt verbs.Runtime) error {
		s := kv.Record(c, history, 2, rt.Now)
		for ; *key == 0; rt.Sleep(time.Millisecond) {
		}
		for until := rt.Now().Add(lasts); rt.Now() < until; rt.Sleep(5 * time.Millisecond) {
			if err := s.Put(*key, s.Value(*key, 40), soon(rt)); err != nil && !errors.Is(err, kv.ErrTimeout) {
				return err
			}
		}
		*end = true
		return nil
	})
	g.run()
	if st := g.server.Snapshot(); st.Away != 1 {
		g.t.Errorf("%d memory servers are out", st.Away)
	}
}

// A change of the servers whose copies count waits until every lease has ended that a client had
// when the change began: a client that knows nothing of the change reads old values until then.
func TestAChangeWaitsForLeases(t *testing.T) {
	const lease = time.Second // longer than the metadata server takes to call a memory server silent
	g, cut := newCutRig(t, lease)
	g.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
		cut()
		var last clock.Time // the last request that the metadata server has answered before the change
		for {
			sent := rt.Now()
			if _, err := c.Get(1, nil, sent.Add(3*time.Millisecond)); !errors.Is(err, kv.ErrNotFound) {
				break
			}
			last = sent
			rt.Sleep(time.Millisecond)
		}
		for g.server.Snapshot().Away == 0 {
			rt.Sleep(time.Millisecond)
		}
		if d := rt.Now().Sub(last); d < lease {
			t.Errorf("ms0 is out %v after the metadata server has extended a lease by %v", d, lease)
		}
		return nil
	})
	g.run()
}

// slowFences delays the answers to requests that ask the memory servers to end connections. A
// memory server answers such a request by rejecting the connection.
type slowFences struct {
	rdmacm.Manager
	rt    verbs.Runtime
	takes time.Duration
	done  map[netip.Addr]int // how many answers have arrived
	// begins, if not nil, is called before each request is sent.
	begins func(to netip.Addr, private []byte)
}

func (d *slowFences) Dial(qp verbs.QP, to netip.Addr, service string, p rdmacm.Params, private []byte, deadline clock.Time) ([]byte, error) {
	if d.begins != nil {
		d.begins(to, private)
	}
	b, err := d.Manager.Dial(qp, to, service, p, private, deadline)
	var rej *rdmacm.RejectError
	if d.takes > 0 && errors.As(err, &rej) && rej.Private != nil {
		d.rt.Sleep(d.takes)
		d.done[to]++
	}
	return b, err
}

// A change waits until all memory servers have ended the connections of the clients: an append that
// is in flight counts the servers from before the change, and would be missing on those that come
// back.
func TestAChangeWaitsForFences(t *testing.T) {
	y := newCopyStory(t, 2)
	y.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
		if err := y.write(c, rt, 1); err != nil {
			return err
		}
		began := rt.Now()
		y.fences.takes = 100 * time.Millisecond
		y.Host("ms0").Crash()
		y.Host("ms0").Restart()
		y.memory("ms0")
		for y.server.Snapshot().Losses == 0 {
			rt.Sleep(time.Millisecond)
		}
		for _, name := range []string{"ms1", "ms2"} {
			if y.fences.done[y.Host(name).Addr()] == 0 {
				t.Errorf("the change is over after %v, before %s has ended the connections", rt.Now().Sub(began), name)
			}
		}
		lost, err := y.read(c, rt)
		if lost > 0 {
			t.Errorf("%d keys lost", lost)
		}
		return err
	})
	y.run()
}

// The metadata server answers OpHello with Busy during a change of the servers whose copies count.
// Such an answer is no lease: a client without one reads no location that another client of its
// process remembers from before the change.
func TestABusyHelloIsNoLease(t *testing.T) {
	for shift := range 10 { // of the reader's questions to the metadata server, against the change
		testBusyHello(t, time.Duration(shift)*10*time.Millisecond)
	}
}

func testBusyHello(t *testing.T, shift time.Duration) {
	const lease = 200 * time.Millisecond
	g, cut := newCutRig(t, lease)
	history, cache := kv.NewHistory(), clover.NewCache(0)
	key, end := uint64(0), false
	g.clientOf("cn0", clover.Config{Cache: cache}, func(c *clover.Client, rt verbs.Runtime) error {
		s := kv.Record(c, history, 1, rt.Now)
		k, err := keyOn0(c, s, rt)
		if err != nil {
			return err
		}
		key = k
		cut()
		rt.Sleep(shift)
		for !end {
			if _, err := s.Get(key, nil, rt.Now().Add(3*time.Millisecond)); err != nil && !errors.Is(err, kv.ErrTimeout) {
				return err
			}
			rt.Sleep(time.Millisecond)
		}
		return s.Err()
	})
	overwritten(g, history, &key, time.Second, &end)
	if err := history.Check(kv.MostStates); err != nil {
		t.Errorf("shift %v: %v", shift, err)
	}
}

// ms0 comes back while ms1 serves data but accepts no connections and ends none: its memory service
// does not run. A change could not end the connections to ms1, and no client would work meanwhile. So
// ms0 is not taken back before the memory service of ms1 answers.
func TestAServerThatServesDataOnlyStopsNoStore(t *testing.T) {
	y := newCopyStory(t, 2)
	y.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
		if err := y.write(c, rt, 1); err != nil {
			return err
		}
		ms0, ms1 := y.Host("ms0"), y.Host("ms1")
		ms0.HangAll()
		for y.server.Snapshot().Away == 0 {
			rt.Sleep(time.Millisecond)
		}
		if err := y.write(c, rt, 2); err != nil {
			return err
		}
		ms1.HangAll()
		ms1.Resume() // its NIC, but not the service
		ms0.ResumeAll()
		for n := range 20 {
			began := rt.Now()
			if err := y.write(c, rt, 3+n); err != nil {
				return err
			}
			if d := rt.Now().Sub(began); d > time.Second {
				t.Errorf("20 PUTs took %v while the memory service of ms1 did not run", d)
			}
			rt.Sleep(50 * time.Millisecond)
		}
		ms1.ResumeAll()
		for y.server.Snapshot().Away > 0 {
			rt.Sleep(time.Millisecond)
		}
		lost, err := y.read(c, rt)
		if lost > 0 {
			t.Errorf("%d keys lost", lost)
		}
		return err
	})
	y.run()
}

// While the memory service of a counted server does not run, the metadata server asks it again and
// again whether the server that is out may come back. That delays none of the metadata server's
// answers to clients.
func TestAHungServiceDelaysNoRequest(t *testing.T) {
	y := newCopyStory(t, 2)
	y.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
		ms0, ms1 := y.Host("ms0"), y.Host("ms1")
		ms0.HangAll()
		for y.server.Snapshot().Away == 0 {
			rt.Sleep(time.Millisecond)
		}
		ms1.HangAll()
		ms1.Resume() // its NIC, but not the service
		ms0.ResumeAll()
		rt.Sleep(time.Second) // ms0 has its connections again
		slowest := time.Duration(0)
		for end := rt.Now().Add(3 * time.Second); rt.Now() < end; rt.Sleep(5 * time.Millisecond) {
			began := rt.Now()
			if _, err := c.Stats(soon(rt)); err != nil {
				return err
			}
			slowest = max(slowest, rt.Now().Sub(began))
		}
		if slowest > 20*time.Millisecond {
			t.Errorf("the metadata server took %v to answer while the memory service of ms1 did not run", slowest)
		}
		if y.server.Snapshot().Away == 0 {
			t.Error("ms0 counts again, although ms1 cannot end the connections of clients")
		}
		ms1.ResumeAll()
		for y.server.Snapshot().Away > 0 {
			rt.Sleep(time.Millisecond)
		}
		return nil
	})
	y.run()
}
