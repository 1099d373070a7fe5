package nic

import (
	"crypto/aes"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// Zero fields of a configuration stand for the documented defaults.
func TestDefaultsOfAConfiguration(t *testing.T) {
	c := configOf(1)
	c.RTT, c.Slots, c.Tickets, c.Regions = 0, 0, 0, 0
	for _, x := range []struct {
		rate      int64
		timeout   time.Duration
		threshold int
	}{
		{0, 0, 65536},
		{8_000_000_000, 0, 50_000}, // 50 µs of 1 GB/s
		{8_000_000_000, 250 * time.Microsecond, 100_000}, // 100 µs
		{8_000_000, 0, onerma.MaxOp},                     // never less than an operation
		{1, 0, onerma.MaxOp},
	} {
		c.Rate, c.Timeout = x.rate, x.timeout
		n, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		d := n.Config()
		if x.timeout == 0 {
			x.timeout = 200 * time.Microsecond
		}
		if d.LinkMTU != 4200 || d.RTT != 50*time.Microsecond || d.DispatchTimeout != 100*time.Microsecond || d.Timeout != x.timeout ||
			d.Window != 65536 || d.Slots != 1024 || d.Tickets != 1024 || d.Regions != 1024 || d.Threshold != x.threshold {
			t.Errorf("rate %d: %+v", x.rate, d)
		}
	}
}

// The bounds of a configuration are inclusive.
func TestBoundsOfAConfiguration(t *testing.T) {
	for name, x := range map[string]struct {
		change func(c *Config)
		ok     bool
	}{
		"the last epoch":       {func(c *Config) { c.Epoch = MaxEpoch }, true},
		"no resolver":          {func(c *Config) { c.Resolve = nil }, false},
		"no MAC":               {func(c *Config) { c.MAC = wire.MAC{} }, false},
		"a group":              {func(c *Config) { c.MAC[0] |= 1 }, false},
		"the smallest MTU":     {func(c *Config) { c.LinkMTU = minMTU }, true},
		"the smallest window":  {func(c *Config) { c.Window = onerma.MaxOp }, true},
		"the largest tables":   {func(c *Config) { c.Slots, c.Tickets, c.Regions = maxTable, maxTable, maxTable }, true},
		"too many slots":       {func(c *Config) { c.Slots = maxTable + 1 }, false},
		"too many tickets":     {func(c *Config) { c.Tickets = maxTable + 1 }, false},
		"too many regions":     {func(c *Config) { c.Regions = maxTable + 1 }, false},
		"the longest timeout":  {func(c *Config) { c.Timeout = time.Second }, true},
		"the longest dispatch": {func(c *Config) { c.DispatchTimeout = time.Second }, false}, // there is no time for the rest
		"the longest RTT":      {func(c *Config) { c.RTT = time.Second }, false},
	} {
		c := configOf(1)
		x.change(&c)
		if err := c.Validate(); (err == nil) != x.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// K_d is the encryption of the initiator's address, the process and the operation under K_r, and a
// vector is counter and address: both ends, and other implementations, compute the same.
func TestFormatsOfKeysAndVectors(t *testing.T) {
	region := Key{1, 2, 3, 15: 9}
	block, err := aes.NewCipher(region[:])
	if err != nil {
		t.Fatal(err)
	}
	in := [16]byte{10, 0, 0, 1, 0x11, 0x22, 0x33, 0x44, byte(onerma.Write)}
	var want Key
	block.Encrypt(want[:], in[:])
	if got := Derive(region, addrOf(0), 0x11223344, onerma.Write); got != want {
		t.Errorf("K_d is %x, want %x", got, want)
	}
	var v vector
	v.set(0x0102030405060708, [4]byte{10, 0, 0, 1})
	if want := (vector{1, 2, 3, 4, 5, 6, 7, 8, 10, 0, 0, 1}); v != want {
		t.Errorf("vector % x, want % x", v, want)
	}
}

// A region has the bytes up to its end, and a region shorter than an operation has no room for it.
func TestEndsOfRegions(t *testing.T) {
	w := newWorld(t, 2, nil)
	p := w.portal(0, 7, 4)
	small, err := w.nics[1].Register(register(t, w.tables[1], make([]byte, 64), verbs.LocalWrite|verbs.RemoteRead|verbs.RemoteWrite))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		offset uint64
		n      int
		want   Status
	}{{0, 64, OK}, {63, 1, OK}, {64, 1, Timeout}, {1, 64, Timeout}, {0, 65, Timeout}, {^uint64(0), 1, Timeout}} {
		for _, op := range []onerma.Op{onerma.Read, onerma.Write} {
			x := w.command(op, 7, 0, c.n)
			x.Remote, x.Offset, x.Key = small.ID(), c.offset, NewCipher(small.Grant(addrOf(0), 7, op))
			w.want(w.one(p, x), c.want)
		}
	}
	x := w.command(onerma.Read, 7, 0, 64)
	x.LocalOffset = 64<<10 - 64
	w.want(w.one(p, x), OK)
	for _, id := range []RegionID{0, 3, 4, 5, 1 << 31} {
		x := w.command(onerma.Read, 7, 0, 64)
		x.Remote = id
		w.want(w.one(p, x), RemoteAuthenticationFailure)
	}
}

// The entries of the region table are used again, and a region that is gone stays gone.
func TestTableOfRegions(t *testing.T) {
	w := newWorld(t, 1, nil)
	n, m := w.nics[0], w.regions[0].mem
	var regions []*Region
	for {
		r, err := n.Register(m)
		if err != nil {
			if !errors.Is(err, verbs.ErrLimit) || len(regions) != 3 {
				t.Errorf("after %d regions: %v", len(regions), err)
			}
			break
		}
		regions = append(regions, r)
	}
	gone := regions[1]
	if err := n.Deregister(gone); err != nil {
		t.Fatal(err)
	}
	next, err := n.Register(m)
	if err != nil || next.ID() != gone.ID() || next.Key() == gone.Key() {
		t.Errorf("%v: ID %d, before %d", err, next.ID(), gone.ID())
	}
	if err := n.Deregister(gone); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("deregister twice: %v", err)
	}
	if err := n.SetKey(gone, Key{}); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("key of a region that is gone: %v", err)
	}
	if n.region(uint32(next.ID())) != next {
		t.Error("the next region of the entry is gone, too")
	}
}

// A portal has from one slot to all that are free, and gives them back.
func TestSlotsOfPortals(t *testing.T) {
	w := newWorld(t, 2, nil)
	n := w.nics[0]
	for _, slots := range []int{-1, 0, 65} {
		if _, err := n.Open(7, slots); !errors.Is(err, verbs.ErrLimit) {
			t.Errorf("%d slots: %v", slots, err)
		}
	}
	p := w.portal(0, 7, 64)
	if _, err := n.Open(8, 1); !errors.Is(err, verbs.ErrLimit) {
		t.Errorf("one slot more: %v", err)
	}
	// Commands whose requests have not been sent are never sent when their portal has been closed.
	for _, op := range []onerma.Op{onerma.Read, onerma.Write} {
		w.issue(p, w.command(op, 7, 0, 64))
	}
	if n.Deadline() != w.now || p.Free() != 62 {
		t.Errorf("deadline %v at %v, %d slots are free", n.Deadline(), w.now, p.Free())
	}
	p.Close()
	if w.settle(); n.Stats().Sent != 0 || n.Deadline() != clock.Never {
		t.Errorf("%+v, deadline %v", n.Stats(), n.Deadline())
	}
	// Completions are polled in pieces, and each frees its slot.
	p = w.portal(0, 7, 64)
	for range 5 {
		w.issue(p, w.command(onerma.Read, 7, 0, 64))
	}
	w.settle()
	var out [2]Completion
	for _, want := range []int{2, 2, 1, 0} {
		if k := p.Poll(out[:]); k != want {
			t.Errorf("%d completions, want %d", k, want)
		}
	}
	if k := p.Poll(nil); k != 0 || p.Free() != 64 {
		t.Errorf("%d completions, %d slots are free", k, p.Free())
	}
}

// A new key of one region ends the inbound WRITEs of that region that wait for the window, and no
// others.
func TestSetKeyEndsWaitingWrites(t *testing.T) {
	w := newWorld(t, 2, func(_ int, c *Config) { c.Window, c.DispatchTimeout, c.Timeout = 4096, 4*rtt, 8*rtt })
	p := w.portal(0, 7, 8)
	other, err := w.nics[1].Register(register(t, w.tables[1], make([]byte, 8192), verbs.LocalWrite|verbs.RemoteWrite))
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := w.command(onerma.Write, 7, 0, 4096)
	elsewhere.Remote, elsewhere.Key = other.ID(), NewCipher(other.Grant(addrOf(0), 7, onerma.Write))
	for i, c := range []*Command{elsewhere, w.command(onerma.Write, 7, 0, 64), elsewhere} {
		c.Tag = uint64(i)
		x := *c
		w.issue(p, &x)
	}
	w.run(w.now.Add(half + 1)) // all three are there; one is pulled
	if err := w.nics[1].SetKey(w.regions[1], Key{5}); err != nil {
		t.Fatal(err)
	}
	w.settle()
	var out [4]Completion
	k := p.Poll(out[:])
	got := map[uint64]Status{}
	for _, c := range out[:k] {
		got[c.Tag] = c.Status
	}
	if k != 3 || got[1] != Timeout || got[2] != OK {
		t.Errorf("%+v", out[:k])
	}
	if used, _ := w.nics[1].Window(); used != 0 || w.nics[1].inbound != 0 || len(w.nics[1].freeTickets) != 64 {
		t.Errorf("%d bytes outstanding, %d inbound", used, w.nics[1].inbound)
	}
}

// A REKEY tells the initiator of a WRITE that waits for the window that its key is refused.
func TestRekeyRefusesWaitingWrites(t *testing.T) {
	w := newWorld(t, 2, func(_ int, c *Config) { c.Window, c.DispatchTimeout, c.Timeout = 4096, 4*rtt, 8*rtt })
	p := w.portal(0, 7, 8)
	first, waits := w.command(onerma.Write, 7, 0, 64), w.command(onerma.Write, 7, 0, 64)
	waits.Class, waits.Tag = 1, 1
	rekey := w.command(onerma.Rekey, 7, 0, onerma.KeyLen)
	rekey.Tag = 2
	for _, c := range []*Command{first, waits, rekey} {
		w.issue(p, c)
	}
	w.settle()
	var out [4]Completion
	if k := p.Poll(out[:]); k != 3 {
		t.Fatalf("%d completions", k)
	}
	for _, c := range out[:3] {
		want := OK
		if c.Tag == 1 {
			want = RemoteAuthenticationFailure
		}
		if c.Status != want {
			t.Errorf("%+v, want %v", c, want)
		}
	}
	if s := w.nics[0].Stats(); s.Forged != 0 || s.Stale != 0 {
		t.Errorf("%+v", s)
	}
}

// The data of a pulled WRITE that is refused by a REKEY name its ticket; a target has as many tickets
// as its configuration says, and refuses WRITEs above them.
func TestTickets(t *testing.T) {
	w := newWorld(t, 2, func(i int, c *Config) { c.Tickets = 1 + 63*(1-i) })
	p := w.portal(0, 7, 8)
	for range 2 {
		w.issue(p, w.command(onerma.Write, 7, 0, 64))
	}
	w.settle()
	var out [4]Completion
	if k := p.Poll(out[:]); k != 2 || out[0].Status != NACK || out[1].Status != OK || w.nics[1].Stats().Nacks != 1 {
		t.Errorf("%+v", out[:k])
	}
	// A request never has a ticket.
	w.filter = func(f *onerma.Frame, b []byte) ([]byte, time.Duration) {
		if f.Kind != onerma.Request {
			return b, 0
		}
		x := *f
		x.Ticket = 1
		raw := x.AppendOpen(nil, 0)
		var s sealer
		s.iv.set(f.Counter, f.IPv4.Src)
		return s.seal(raw, nil, NewCipher(w.regions[1].Grant(addrOf(0), 7, onerma.Read)), &vector{}), 0
	}
	w.want(w.one(p, w.command(onerma.Read, 7, 0, 64)), Timeout)
	if n := w.nics[1].Stats().Refused; n != 1 {
		t.Errorf("%d refused", n)
	}
}

// The body of a pull is the target's timeout in nanoseconds.
func TestBodyOfAPull(t *testing.T) {
	w := newWorld(t, 2, nil)
	seen := false
	w.filter = func(f *onerma.Frame, b []byte) ([]byte, time.Duration) {
		if f.Kind == onerma.Pull {
			var s sealer
			body, ok := s.open(f, NewCipher(w.regions[1].Grant(addrOf(0), 7, onerma.Write)), &w.nics[0].slots[f.Slot].request)
			if seen = true; !ok || time.Duration(binary.BigEndian.Uint32(body)) != 4*rtt {
				t.Errorf("% x, %v", body, ok)
			}
		}
		return b, 0
	}
	p := w.portal(0, 7, 1)
	if w.want(w.one(p, w.command(onerma.Write, 7, 0, 64)), OK); !seen {
		t.Error("no pull")
	}
}
