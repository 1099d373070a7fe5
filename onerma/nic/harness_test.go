package nic

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// Times of all tests: a frame takes half a round trip.
const (
	rtt  = 10 * time.Microsecond
	half = rtt / 2
)

// flight is a frame on its way.
type flight struct {
	at   clock.Time
	data []byte
}

// world is some NICs that are joined by links with a delay.
type world struct {
	t       testing.TB
	now     clock.Time
	nics    []*NIC
	regions []*Region
	memory  [][]byte
	tables  []*mem.Table
	flights []flight
	out     packetio.Batch
	// filter, if not nil, may change, drop (nil) or delay each frame when it is sent.
	filter func(f *onerma.Frame, frame []byte) ([]byte, time.Duration)
	sent   [][]byte // all frames, if keep
	keep   bool
	last   map[[4]byte]uint64 // counter of the last message of each sender
}

func addrOf(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(1 + i)}) }

func resolve(a netip.Addr) (wire.MAC, bool) {
	b := a.As4()
	return wire.MAC{2, 0, 0, 0, 0, b[3]}, b[3] < 100
}

func configOf(i int) Config {
	mac, _ := resolve(addrOf(i))
	return Config{MAC: mac, Addr: addrOf(i), Rand: rand.New(rand.NewPCG(uint64(i), 7)), Resolve: resolve, RTT: rtt, Slots: 64, Tickets: 64, Regions: 4}
}

// newWorld makes n NICs with a region of 64 KiB each.
func newWorld(t testing.TB, n int, change func(i int, c *Config)) *world {
	t.Helper()
	w := &world{t: t, last: map[[4]byte]uint64{}}
	for i := range n {
		c := configOf(i)
		if change != nil {
			change(i, &c)
		}
		w.add(c)
	}
	return w
}

func (w *world) add(c Config) {
	w.t.Helper()
	n, err := New(c)
	if err != nil {
		w.t.Fatal(err)
	}
	table := mem.New(c.Rand, 0)
	buf := make([]byte, 64<<10)
	for i := range buf {
		buf[i] = byte(c.Rand.Uint32())
	}
	r, err := n.Register(register(w.t, table, buf, verbs.LocalWrite|verbs.RemoteRead|verbs.RemoteWrite))
	if err != nil {
		w.t.Fatal(err)
	}
	w.nics, w.regions, w.memory, w.tables = append(w.nics, n), append(w.regions, r), append(w.memory, buf), append(w.tables, table)
}

func register(t testing.TB, table *mem.Table, buf []byte, access verbs.Access) *mem.Region {
	t.Helper()
	pd, err := table.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	m, err := table.Reg(pd, buf, access)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// flush puts the frames that a step has made on the links.
func (w *world) flush() {
	var f onerma.Frame
	for _, x := range w.out.Frames {
		if err := onerma.ParseFrame(x.Data, &f); err != nil {
			w.t.Fatalf("the NIC has made a frame that does not parse: %v", err)
		}
		if w.last[f.IPv4.Src] >= f.Counter {
			w.t.Fatalf("%v: the counter repeats: the last one was %#x", &f, w.last[f.IPv4.Src])
		}
		w.last[f.IPv4.Src] = f.Counter
		data, delay := slices.Clone(x.Data), half
		if w.keep {
			w.sent = append(w.sent, slices.Clone(data))
		}
		if w.filter != nil {
			var more time.Duration
			if data, more = w.filter(&f, data); data == nil {
				continue
			}
			delay += more
		}
		w.inject(delay, data)
	}
	w.out.Reset()
}

// inject puts a frame on a link that arrives after a delay.
func (w *world) inject(delay time.Duration, data []byte) {
	w.flights = append(w.flights, flight{w.now.Add(delay), data})
}

// next is when the next thing happens.
func (w *world) next() clock.Time {
	at := clock.Never
	for _, n := range w.nics {
		at = clock.Min(at, n.Deadline())
	}
	for _, x := range w.flights {
		at = clock.Min(at, x.at)
	}
	return max(at, w.now)
}

// run runs until t.
func (w *world) run(t clock.Time) {
	for {
		at := w.next()
		if at > t {
			break
		}
		w.now = at
		w.step()
	}
	w.now = t
}

func (w *world) step() {
	if i := slices.IndexFunc(w.flights, func(x flight) bool { return x.at <= w.now }); i >= 0 {
		data := w.flights[i].data
		w.flights = slices.Delete(w.flights, i, i+1)
		for _, n := range w.nics {
			n.Frame(w.now, 0, packetio.Frame{Data: data}, &w.out)
		}
	} else {
		for _, n := range w.nics {
			if n.Deadline() <= w.now {
				n.Tick(w.now, &w.out)
				break
			}
		}
	}
	w.flush()
	for i, n := range w.nics {
		if used, size := n.Window(); used < 0 || used > size {
			w.t.Fatalf("NIC %d has %d bytes of %d outstanding", i, used, size)
		}
	}
}

// settle runs until nothing is left to happen.
func (w *world) settle() {
	for w.next() != clock.Never {
		w.run(w.next())
	}
}

// portal opens slots on NIC i.
func (w *world) portal(i int, pid PID, slots int) *Portal {
	w.t.Helper()
	p, err := w.nics[i].Open(pid, slots)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// command is an operation of NIC 0 on the region of NIC 1 with the right key.
func (w *world) command(op onerma.Op, pid PID, offset uint64, length int) *Command {
	c := &Command{
		Op: op, Length: length, Target: addrOf(1), Remote: w.regions[1].ID(), Offset: offset,
		Key: NewCipher(w.regions[1].Grant(addrOf(0), pid, op)), Local: w.regions[0], LocalOffset: offset,
	}
	if op == onerma.Rekey {
		c.Local, c.LocalOffset, c.NewKey = nil, 0, Key{1, 2, 3}
	}
	return c
}

// one issues a command and runs until it has ended.
func (w *world) one(p *Portal, c *Command) Completion {
	w.t.Helper()
	w.issue(p, c)
	w.settle()
	return w.done(p)
}

func (w *world) issue(p *Portal, c *Command) {
	w.t.Helper()
	if err := p.Issue(w.now, c); err != nil {
		w.t.Fatal(err)
	}
}

// done polls the only completion.
func (w *world) done(p *Portal) Completion {
	w.t.Helper()
	out := make([]Completion, 8)
	if k := p.Poll(out); k != 1 {
		w.t.Fatalf("%d completions, want 1", k)
	}
	return out[0]
}

// want checks how a command has ended.
func (w *world) want(c Completion, s Status) {
	w.t.Helper()
	if c.Status != s {
		w.t.Errorf("%v ended as %v after %v, want %v; target %+v", c.Op, c.Status, c.TotalDelay, s, w.nics[1].Stats())
	}
}

// same checks that n bytes of both regions at an offset are equal.
func (w *world) same(offset uint64, n int) error {
	if !bytes.Equal(w.memory[0][offset:][:n], w.memory[1][offset:][:n]) {
		return fmt.Errorf("bytes [%d,+%d) differ", offset, n)
	}
	return nil
}
