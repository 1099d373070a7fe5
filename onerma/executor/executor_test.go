package executor

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
	"github.com/rdmalab/rdmalab/swordbox/apps/forward"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// The rack of the paper's testbed: 100 Gbit/s and a round trip of 5 µs.
const (
	rtt  = 5 * time.Microsecond
	rate = 100_000_000_000
	size = 1 << 20
)

// host is a NIC with a region, and an executor.
type host struct {
	nic    *nic.NIC
	m      *Machine
	node   simnet.NodeID
	link   *simnet.Link
	memory []byte
	region *nic.Region
	exec   *Executor
	portal *nic.Portal
}

// rack is some hosts behind a switch.
type rack struct {
	t     *testing.T
	net   *simnet.Net
	hosts []*host
}

func addr(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(1 + i)}) }

func resolve(a netip.Addr) (wire.MAC, bool) {
	b := a.As4()
	return wire.MAC{2, 0, 0, 0, 0, b[3]}, true
}

func newRack(t *testing.T, n int, cfg Config, rules ...fault.Rule) *rack {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	r := &rack{t: t, net: simnet.New(simnet.Config{})}
	sw, err := pipeline.New(pipeline.Config{Ports: n, Program: forward.Program{}})
	must(err)
	box := r.net.Add("switch", sw)
	cfg.RTT = rtt
	for i := range n {
		random := rand.New(rand.NewPCG(uint64(i), 1))
		mac, _ := resolve(addr(i))
		h := &host{memory: make([]byte, size)}
		for j := range h.memory {
			h.memory[j] = byte(random.Uint32())
		}
		h.nic, err = nic.New(nic.Config{MAC: mac, Addr: addr(i), Rand: random, Resolve: resolve, RTT: rtt, Rate: rate, Slots: 256})
		must(err)
		table := mem.New(random, 0)
		pd, err := table.AllocPD()
		must(err)
		mr, err := table.Reg(pd, h.memory, verbs.LocalWrite|verbs.RemoteRead|verbs.RemoteWrite)
		must(err)
		h.region, err = h.nic.Register(mr)
		must(err)
		h.portal, err = h.nic.Open(nic.PID(10+i), 128)
		must(err)
		h.exec, err = New(cfg, h.portal)
		must(err)
		h.m = NewMachine(h.nic)
		h.m.Failed = func(err error) { t.Error(err) }
		h.m.Add(h.exec)
		h.node = r.net.Add(addr(i).String(), h.m)
		up := fault.NewInjector(1, addr(i).String(), fault.Up, rules)
		down := fault.NewInjector(1, addr(i).String(), fault.Down, rules)
		h.link = r.net.Connect(simnet.LinkConfig{
			A: simnet.End{Node: h.node}, B: simnet.End{Node: box, Port: i}, Delay: rtt/4 - 250*time.Nanosecond, Rate: rate, Up: up.Frame, Down: down.Frame,
		})
		r.hosts = append(r.hosts, h)
	}
	return r
}

// transfer is one of n bytes between hosts, at the same offset of both memories.
func (r *rack) transfer(from, to int, op onerma.Op, offset, n int) Transfer {
	target := r.hosts[to]
	return Transfer{
		Op: op, Target: addr(to), Remote: target.region.ID(), Offset: uint64(offset), Length: n, Local: r.hosts[from].region, LocalOffset: uint64(offset),
		Key: nic.NewCipher(target.region.Grant(addr(from), r.hosts[from].portal.PID(), op)), Deadline: clock.Never,
	}
}

func (r *rack) start(from int, t Transfer) {
	r.t.Helper()
	now, _ := r.net.Begin(r.hosts[from].node)
	err := r.hosts[from].exec.Start(now, t)
	r.net.End(r.hosts[from].node)
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rack) run(d time.Duration) {
	r.t.Helper()
	if err := r.net.RunUntil(r.net.Now().Add(d)); err != nil {
		r.t.Fatal(err)
	}
}

// one runs a transfer to its end.
func (r *rack) one(from int, t Transfer) Result {
	r.t.Helper()
	r.start(from, t)
	return r.result(from)
}

func (r *rack) result(from int) Result {
	r.t.Helper()
	var out [1]Result
	for range 100_000 {
		if r.hosts[from].exec.Results(out[:]) == 1 {
			return out[0]
		}
		r.run(rtt)
	}
	r.t.Fatal("the transfer does not end")
	return Result{}
}

// Transfers of any size move their bytes, also when links lose, delay, copy and damage messages.
func TestTransfers(t *testing.T) {
	for name, rules := range map[string][]fault.Rule{
		"clean": nil,
		"bad": {
			{Link: addr(1).String(), Kind: fault.Loss, Probability: 0.05},
			{Link: addr(0).String(), Kind: fault.Duplicate, Probability: 0.2},
			{Link: addr(1).String(), Kind: fault.Reorder, Probability: 0.1, Delay: 3 * rtt},
		},
	} {
		r := newRack(t, 2, Config{}, rules...)
		for _, n := range []int{1, 4096, 4097, 100_000} {
			for _, op := range []onerma.Op{onerma.Read, onerma.Write} {
				got := r.one(0, r.transfer(0, 1, op, 777, n))
				if got.Status != nic.OK || got.Moved != n || (got.Retries > 0) && rules == nil {
					t.Errorf("%s: %v of %d bytes: %+v", name, op, n, got)
				}
				if !bytes.Equal(r.hosts[0].memory[777:][:n], r.hosts[1].memory[777:][:n]) {
					t.Errorf("%s: %v of %d bytes: they differ", name, op, n)
				}
				for i := range r.hosts[0].memory {
					r.hosts[0].memory[i]++
				}
			}
		}
	}
}

// A failure is tried again until the deadline, or handed up at once.
func TestFailures(t *testing.T) {
	cut := fault.Rule{Link: addr(1).String(), Kind: fault.Blackhole}
	r := newRack(t, 2, Config{}, cut)
	x := r.transfer(0, 1, onerma.Write, 0, 10_000)
	x.Once, x.Tag = true, 5
	if got := r.one(0, x); got.Status != nic.Timeout || got.Moved != 0 || got.Retries != 0 || got.Tag != 5 || got.Delay != 4*rtt {
		t.Errorf("once: %+v", got)
	}
	failed := r.hosts[0].nic.Stats().Ended[nic.Timeout]
	r.run(20 * rtt)
	if n := r.hosts[0].nic.Stats().Ended[nic.Timeout] - failed; n > 0 {
		t.Errorf("%d operations of a transfer that had ended", n)
	}
	x = r.transfer(0, 1, onerma.Read, 0, 10_000)
	begun := r.net.Now()
	x.Deadline = begun.Add(time.Millisecond)
	if got := r.one(0, x); got.Status != nic.Timeout || got.Retries < 1 || got.Delay < time.Millisecond || got.Delay > time.Millisecond+7*rtt {
		t.Errorf("until the deadline: %+v", got)
	}
	if remote, local := r.hosts[0].exec.Window(addr(1), onerma.Read); remote > 0.1 || local < 1 {
		t.Errorf("remote window %g, local %g", remote, local)
	}
}

// A refused key ends a transfer, unless it has the next one.
func TestKeys(t *testing.T) {
	r := newRack(t, 2, Config{})
	x := r.transfer(0, 1, onerma.Read, 0, 50_000)
	former := x.Key
	if err := r.hosts[1].nic.SetKey(r.hosts[1].region, nic.Key{7}); err != nil {
		t.Fatal(err)
	}
	if got := r.one(0, x); got.Status != nic.RemoteAuthenticationFailure || got.Moved != 0 {
		t.Errorf("%+v", got)
	}
	x = r.transfer(0, 1, onerma.Read, 0, 50_000)
	x.Key, x.NextKey = former, x.Key
	if got := r.one(0, x); got.Status != nic.OK || got.Retries < 1 {
		t.Errorf("with the next key: %+v", got)
	}
	x.NextKey = nic.NewCipher(nic.Key{1})
	if got := r.one(0, x); got.Status != nic.RemoteAuthenticationFailure || got.Retries < 1 {
		t.Errorf("with a next key that is wrong: %+v", got)
	}
}

// Keys may be replaced twice before a transfer has issued an operation under the first of the new ones, or an
// operation under the former key has ended: the transfer uses the key that the target has.
func TestKeysAreReplacedTwice(t *testing.T) {
	r := newRack(t, 2, Config{})
	owner, region := r.hosts[1].nic, r.hosts[1].region
	x := r.transfer(0, 1, onerma.Read, 0, 500_000)
	renew := func(k nic.Key) {
		now, _ := r.net.Begin(r.hosts[0].node)
		defer r.net.End(r.hosts[0].node)
		next := nic.NewCipher(nic.Derive(k, addr(0), r.hosts[0].portal.PID(), x.Op))
		r.hosts[0].exec.Renew(addr(1), region.ID(), x.Op, next)
		r.hosts[0].exec.deadline = now
	}
	r.start(0, x)
	for i := range byte(10) {
		renew(nic.Key{1, i})
		if err := owner.Rotate(region, nic.Key{1, i}); err != nil {
			t.Fatal(err)
		}
		renew(nic.Key{2, i})
		r.run(2 * rtt)
		if err := owner.Rotate(region, nic.Key{2, i}); err != nil {
			t.Fatal(err)
		}
	}
	r.run(time.Millisecond)
	var out [2]Result
	if n := r.hosts[0].exec.Results(out[:]); n != 1 || out[0].Status != nic.OK || out[0].Retries == 0 {
		t.Errorf("%d results, %+v", n, out[0])
	}
}

func TestBadTransfersAndConfigs(t *testing.T) {
	r := newRack(t, 2, Config{})
	for _, change := range []func(*Transfer){
		func(x *Transfer) { x.Op = onerma.Rekey }, func(x *Transfer) { x.Length = 0 }, func(x *Transfer) { x.Key = nil }, func(x *Transfer) { x.Local = nil },
	} {
		x := r.transfer(0, 1, onerma.Read, 0, 1)
		change(&x)
		if err := r.hosts[0].exec.Start(0, x); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%+v: %v", x, err)
		}
	}
	for _, c := range []Config{{}, {RTT: rtt, Least: 2, First: 1}, {RTT: rtt, Most: 0.5}, {RTT: rtt, RemoteTarget: -1}} {
		if _, err := New(c, r.hosts[0].portal); err == nil {
			t.Errorf("%+v: no error", c)
		}
	}
	failed := 0
	r.hosts[0].m.Failed = func(error) { failed++ }
	x := r.transfer(0, 1, onerma.Read, size-1, 2) // beyond the local region
	good := r.transfer(0, 1, onerma.Write, 0, 5000)
	good.Tag = 1
	now, _ := r.net.Begin(r.hosts[0].node)
	if err := errors.Join(r.hosts[0].exec.Start(now, x), r.hosts[0].exec.Start(now, good)); err != nil {
		t.Fatal(err)
	}
	r.net.End(r.hosts[0].node)
	if bad, other := r.result(0), r.result(0); bad.Status != nic.Timeout || other.Status != nic.OK || other.Tag != 1 || failed != 1 {
		t.Errorf("%+v, %+v, %d refused", bad, other, failed)
	}
	failed = 0
	if got := r.one(0, x); got.Status != nic.Timeout || failed != 1 {
		t.Errorf("%+v, %d refused", got, failed)
	}
}

// Algorithm 1 with the paper's constants.
func TestWindow(t *testing.T) {
	c, err := Config{RTT: rtt}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	w := Window{Size: 0.5}
	step := func(name string, want float64) {
		t.Helper()
		if diff := w.Size - want; diff > 1e-9 || diff < -1e-9 {
			t.Errorf("%s: window %g, want %g", name, w.Size, want)
		}
	}
	w.succeeded(0, &c, rtt, 2*rtt)
	step("below 1", 0.75)
	w.Size = 2
	w.succeeded(0, &c, rtt, 2*rtt)
	step("above 1", 2.125)
	w.succeeded(0, &c, 2*rtt, rtt)
	step("twice the target", 2.125*0.6)
	w.succeeded(clock.Time(rtt-1), &c, 2*rtt, rtt)
	step("a second decrease in a round trip", 2.125*0.6)
	w.Size = 2
	w.succeeded(clock.Time(rtt), &c, 100*rtt, rtt)
	step("at most by half", 1)
	w.failed(clock.Time(2*rtt), &c)
	step("a failure", 0.1)
	for i := range 4 {
		w.failed(clock.Time(time.Duration(3+i)*rtt), &c)
	}
	step("not below the bound", 0.01)
	w.Size = 64
	w.succeeded(0, &c, 0, rtt)
	step("not above the bound", 64)
}

// Small transfers beside a large one to the same peer wait for single operations of it, not for the
// whole.
func TestSmallBesideLarge(t *testing.T) {
	r := newRack(t, 2, Config{First: 15})
	r.start(0, r.transfer(0, 1, onerma.Read, 0, size))
	r.run(3 * rtt)
	small := r.transfer(0, 1, onerma.Read, 0, 64)
	small.Tag = 1
	got := r.one(0, small)
	if got.Tag != 1 || got.Status != nic.OK || got.Delay > 6*rtt {
		t.Errorf("%+v: the large transfer takes %v alone", got, time.Duration(size*8*int64(time.Second)/rate))
	}
	if got = r.result(0); got.Tag != 0 || got.Status != nic.OK {
		t.Errorf("%+v", got)
	}
}

// Window returns the remote window for op at a peer, and the local window, in operations.
func (e *Executor) Window(peer netip.Addr, op onerma.Op) (remote, local float64) {
	if f := e.flows[flowID{peer, op}]; f != nil {
		return f.Size, e.local.Size
	}
	return e.cfg.First, e.local.Size
}
