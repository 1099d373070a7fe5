package nic

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// Operations of every kind of size move their bytes and no others, in one packet or in several, and
// take two or four hops.
func TestReadAndWrite(t *testing.T) {
	for _, mtu := range []int{0, 1500, minMTU} {
		w := newWorld(t, 2, func(_ int, c *Config) { c.LinkMTU = mtu })
		p := w.portal(0, 7, 4)
		for _, n := range []int{1, 63, 64, 65, 1000, 1024, 4095, 4096} {
			for op, hops := range map[onerma.Op]time.Duration{onerma.Read: rtt, onerma.Write: 2 * rtt} {
				const at = 4099
				before := [][]byte{bytes.Clone(w.memory[0]), bytes.Clone(w.memory[1])}
				c := w.command(op, 7, at, n)
				c.Tag = uint64(n)
				got := w.one(p, c)
				if w.want(got, OK); got.Tag != uint64(n) || got.TotalDelay != hops || got.IssueDelay != 0 || got.Length != n || got.Op != op {
					t.Errorf("completion %+v, want after %v", got, hops)
				}
				if err := w.same(at, n); err != nil {
					t.Errorf("MTU %d: %v of %d bytes: %v", mtu, op, n, err)
				}
				for i := range before {
					copy(before[i][at:], w.memory[i][at:][:n])
					if !bytes.Equal(before[i], w.memory[i]) {
						t.Errorf("%v of %d bytes has changed others of NIC %d", op, n, i)
					}
				}
				for i := range w.memory[0] {
					w.memory[0][i]++
				}
			}
		}
	}
}

// A key lets one process on one NIC do one operation on one region.
func TestKeys(t *testing.T) {
	w := newWorld(t, 3, nil)
	p := w.portal(0, 7, 4)
	other, err := w.nics[1].Register(register(t, w.tables[1], make([]byte, 4096), verbs.LocalWrite|verbs.RemoteRead|verbs.RemoteWrite))
	if err != nil {
		t.Fatal(err)
	}
	r := w.regions[1]
	before := bytes.Clone(w.memory[1])
	for _, op := range []onerma.Op{onerma.Read, onerma.Write, onerma.Rekey} {
		n := onerma.KeyLen
		for name, k := range map[string]Key{
			"PID":       r.Grant(addrOf(0), 8, op),
			"address":   r.Grant(addrOf(2), 7, op),
			"operation": r.Grant(addrOf(0), 7, op%3+1),
			"region":    other.Grant(addrOf(0), 7, op),
			"K_r":       r.Key(),
			"reserved":  reservedKey,
		} {
			c := w.command(op, 7, 0, n)
			c.Key = NewCipher(k)
			if got := w.one(p, c); got.Status != RemoteAuthenticationFailure || got.TotalDelay != rtt {
				t.Errorf("%v with the key of another %s: %+v", op, name, got)
			}
		}
		c := w.command(op, 7, 0, n)
		c.Remote = 4 // there is none
		w.want(w.one(p, c), RemoteAuthenticationFailure)
	}
	if !bytes.Equal(before, w.memory[1]) {
		t.Error("the memory has changed")
	}
	w.want(w.one(p, w.command(onerma.Write, 7, 0, 16)), OK)
}

// What the target does not have, or does not allow, is not answered.
func TestBadAddress(t *testing.T) {
	w := newWorld(t, 2, nil)
	p := w.portal(0, 7, 4)
	sealed, err := w.nics[1].Register(register(t, w.tables[1], make([]byte, 4096), verbs.LocalWrite))
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range []onerma.Op{onerma.Read, onerma.Write} {
		c := w.command(op, 7, 0, 4096)
		c.Offset = 64<<10 - 4095
		w.want(w.one(p, c), Timeout)
		c = w.command(op, 7, 0, 64)
		c.Offset = ^uint64(0) - 3
		w.want(w.one(p, c), Timeout)
		c = w.command(op, 7, 0, 64)
		c.Remote, c.Key = sealed.ID(), NewCipher(sealed.Grant(addrOf(0), 7, op))
		got := w.one(p, c)
		if w.want(got, Timeout); got.TotalDelay != 4*rtt {
			t.Errorf("it took %v", got.TotalDelay)
		}
	}
	c := w.command(onerma.Read, 7, 0, 64)
	c.Target = addrOf(120) // its MAC address is unknown
	w.want(w.one(p, c), Timeout)
	if s := w.nics[0].Stats(); s.Unresolved != 1 || w.nics[1].Stats().Refused != 6 {
		t.Errorf("%+v", s)
	}
}

// A READ enters service when 4096 bytes are free, however small it is; what waits too long ends and
// was never sent. Bytes that have landed, and those of a command that has ended, are refunded.
func TestWindow(t *testing.T) {
	w := newWorld(t, 2, func(_ int, c *Config) { c.Window = 8192 })
	w.filter = func(*onerma.Frame, []byte) ([]byte, time.Duration) { return nil, 0 }
	p := w.portal(0, 7, 8)
	for _, n := range []int{4096, 1, 1} {
		w.issue(p, w.command(onerma.Read, 7, 0, n))
	}
	w.run(0)
	if used, _ := w.nics[0].Window(); used != 4097 || w.nics[0].Stats().Sent != 2 {
		t.Errorf("%d bytes are outstanding: the last byte may enter only if 4096 are free", used)
	}
	w.settle()
	var out [8]Completion
	if k := p.Poll(out[:]); k != 3 || out[0].Status != DispatchTimeout || out[0].TotalDelay != 2*rtt || out[0].IssueDelay != 2*rtt ||
		out[1].Status != Timeout || out[2].Status != Timeout || out[2].TotalDelay != 4*rtt {
		t.Errorf("%+v", out[:k])
	}
	if used, _ := w.nics[0].Window(); used != 0 {
		t.Errorf("%d bytes are outstanding", used)
	}
	w.filter = nil
	for range 4 {
		w.issue(p, w.command(onerma.Read, 7, 0, 4096))
	}
	w.settle()
	if k := p.Poll(out[:]); k != 4 || out[3].Status != OK || out[3].IssueDelay != rtt || out[3].TotalDelay != 2*rtt {
		t.Errorf("two at a time: %+v", out[:k])
	}
}

// Class 0 gets four turns for each of class 1, and a class that waits alone gets all.
func TestArbitration(t *testing.T) {
	w := newWindow(1<<20, 64)
	for i := range 12 {
		for class := range w.fifos {
			if i < 6 || class == 1 {
				w.fifos[class].push(waiter{index: uint16(class), size: 1})
			}
		}
	}
	var got []byte
	for w.ready() {
		x, _ := w.admit()
		got = append(got, '0'+byte(x.index))
	}
	if want := "000010011111111111"; string(got) != want {
		t.Errorf("turns %s, want %s", got, want)
	}
}

// A target whose queue is above the threshold refuses, and one whose window stays full does.
func TestNack(t *testing.T) {
	w := newWorld(t, 2, func(_ int, c *Config) { c.Window, c.Threshold, c.Rate = 4096, 8192, 1_000_000_000 })
	p := w.portal(0, 7, 8)
	q := w.portal(0, 7, 8)
	for range 4 { // 33 us of the link each
		w.issue(q, w.command(onerma.Write, 7, 0, 4096))
	}
	w.settle()
	var out [8]Completion
	k := q.Poll(out[:])
	slices.SortFunc(out[:k], func(a, b Completion) int { return int(a.TotalDelay - b.TotalDelay) })
	if k != 4 || out[0].Status != NACK || out[0].TotalDelay != rtt || out[1].Status != OK || out[2].Status != NACK || out[2].TotalDelay != 3*rtt || out[3].Status != OK {
		t.Errorf("one is pulled, one waits too long, one is above the threshold: %+v", out[:k])
	}
	if s := w.nics[1].Stats(); s.Nacks != 2 || w.nics[0].Stats().Ended[NACK] != 2 {
		t.Errorf("%+v", s)
	}
	w.want(w.one(p, w.command(onerma.Read, 7, 0, 4096)), OK)
}

// When a WRITE has ended as TIMEOUT, its target's memory does not change any more, wherever messages
// were lost or delayed, and also if its messages come again later.
func TestWriteEndsAtTheTargetFirst(t *testing.T) {
	for delay := time.Duration(0); delay <= 10*rtt; delay += rtt / 4 {
		for kind := onerma.Request; kind <= onerma.Done; kind++ {
			w := newWorld(t, 2, func(_ int, c *Config) { c.LinkMTU = 1500 })
			w.keep = true
			w.filter = func(f *onerma.Frame, b []byte) ([]byte, time.Duration) {
				if f.Kind == kind && f.At == 0 {
					return b, delay
				}
				return b, 0
			}
			p := w.portal(0, 7, 1)
			w.issue(p, w.command(onerma.Write, 7, 0, 4096))
			for p.done.n == 0 {
				w.run(w.next())
			}
			after := bytes.Clone(w.memory[1])
			got := w.done(p)
			if got.Status == OK && w.same(0, 4096) != nil || got.Status != OK && got.Status != Timeout {
				t.Errorf("%v by %v: %v", kind, delay, got.Status)
			}
			if bound := 4*rtt + 4*rtt*33/32; got.TotalDelay > bound {
				t.Errorf("%v by %v: it took %v of %v", kind, delay, got.TotalDelay, bound)
			}
			for _, b := range w.sent {
				w.inject(rtt, b)
			}
			w.settle()
			if !bytes.Equal(after, w.memory[1]) {
				t.Errorf("%v by %v: the memory has changed after %v", kind, delay, got.Status)
			}
		}
	}
}

// A copy of the request makes a second pull. It is not served: its time at the target ends later than
// that of the command.
func TestOnePullIsServed(t *testing.T) {
	w := newWorld(t, 2, nil)
	pulls := 0
	w.filter = func(f *onerma.Frame, b []byte) ([]byte, time.Duration) {
		switch {
		case f.Kind == onerma.Request:
			w.inject(half+3*rtt, slices.Clone(b))
		case f.Kind == onerma.Pull:
			pulls++
		case f.Kind == onerma.Data && pulls == 1:
			return nil, 0 // the first data are lost
		case f.Kind == onerma.Data:
			return b, 2 * rtt
		}
		return b, 0
	}
	p := w.portal(0, 7, 1)
	w.issue(p, w.command(onerma.Write, 7, 0, 4096))
	for p.done.n == 0 {
		w.run(w.next())
	}
	before := bytes.Clone(w.memory[1])
	w.want(w.done(p), Timeout)
	w.settle()
	if pulls != 2 || !bytes.Equal(before, w.memory[1]) {
		t.Errorf("%d pulls; memory has changed: %t", pulls, !bytes.Equal(before, w.memory[1]))
	}
}

// A copy of the pull is served again, without more time.
func TestCopyOfAPull(t *testing.T) {
	w := newWorld(t, 2, nil)
	data := 0
	w.filter = func(f *onerma.Frame, b []byte) ([]byte, time.Duration) {
		switch f.Kind {
		case onerma.Pull:
			w.inject(rtt, slices.Clone(b))
		case onerma.Data:
			if data++; data == 1 {
				return nil, 0
			}
		}
		return b, 0
	}
	p := w.portal(0, 7, 1)
	w.want(w.one(p, w.command(onerma.Write, 7, 0, 4096)), OK)
	if data != 2 || w.same(0, 4096) != nil {
		t.Errorf("%d data messages", data)
	}
}

// Any message, recorded and sent again later, also to a NIC that has restarted, changes no memory and
// completes nothing.
func TestReplays(t *testing.T) {
	w := newWorld(t, 2, func(_ int, c *Config) { c.LinkMTU = 1500 })
	w.keep = true
	p := w.portal(0, 7, 4)
	for _, op := range []onerma.Op{onerma.Read, onerma.Write} {
		w.want(w.one(p, w.command(op, 7, 0, 4000)), OK)
	}
	w.want(w.one(p, w.command(onerma.Rekey, 7, 0, onerma.KeyLen)), OK)
	recorded := w.sent
	w.keep = false
	for i := range w.memory {
		for j := range w.memory[i] {
			w.memory[i][j] += byte(1 + i)
		}
	}
	key := w.regions[1].Key()
	before := [][]byte{bytes.Clone(w.memory[0]), bytes.Clone(w.memory[1])}
	check := func(name string) {
		w.settle()
		for i := range before {
			if !bytes.Equal(before[i], w.memory[i]) {
				t.Errorf("%s: the memory of NIC %d has changed", name, i)
			}
		}
		if w.regions[1].Key() != key || p.done.n > 0 {
			t.Errorf("%s: key changed %t, %d completions", name, w.regions[1].Key() != key, p.done.n)
		}
	}
	for _, b := range recorded {
		w.inject(0, slices.Clone(b))
	}
	check("all")
	if err := w.nics[1].SetKey(w.regions[1], Key{}); err != nil { // the key under which they were recorded is another one
		t.Fatal(err)
	}
	key = Key{}
	for _, b := range recorded {
		w.inject(0, slices.Clone(b))
		check("with another key")
	}
}

// Refusals of a former command of a slot, and refusals whose sender has not seen the request, are
// ignored.
func TestForgedRefusals(t *testing.T) {
	w := newWorld(t, 2, nil)
	p := w.portal(0, 7, 1)
	c := w.command(onerma.Read, 7, 0, 64)
	good := c.Key
	c.Key = NewCipher(Key{9})
	w.keep = true
	w.want(w.one(p, c), RemoteAuthenticationFailure)
	former := w.sent[1]
	c.Key = good
	attacker := &sealer{reserved: NewCipher(reservedKey)}
	w.filter = func(f *onerma.Frame, b []byte) ([]byte, time.Duration) {
		if f.Kind != onerma.Request {
			return b, 0
		}
		w.inject(0, former)
		for _, k := range []onerma.Kind{onerma.Nack, onerma.AuthFail} {
			for guess := range uint64(3) {
				x := *f
				x.Kind, x.Counter = k, 1<<60|guess
				x.Eth.Dst, x.Eth.Src, x.IPv4.Src, x.IPv4.Dst = f.Eth.Src, f.Eth.Dst, f.IPv4.Dst, f.IPv4.Src
				var prev vector
				prev.set(f.Counter-guess, f.IPv4.Src)
				if k == onerma.AuthFail {
					prev.set(f.Counter+1+guess, f.IPv4.Src) // the sender guesses
				}
				attacker.iv.set(x.Counter, x.IPv4.Src)
				raw := x.AppendOpen(nil, 0)
				w.inject(0, attacker.seal(raw, nil, attacker.reserved, &prev))
			}
		}
		return b, 0
	}
	w.want(w.one(p, c), OK)
	if s := w.nics[0].Stats(); s.Forged != 6 || s.Stale != 1 {
		t.Errorf("%+v", s)
	}
}

// A REKEY replaces the key of one region at once: operations under the former key are refused, those
// in progress end, and other regions go on.
func TestRekey(t *testing.T) {
	w := newWorld(t, 2, nil)
	p, q := w.portal(0, 7, 4), w.portal(0, 8, 4)
	other, err := w.nics[1].Register(register(t, w.tables[1], make([]byte, 4096), verbs.LocalWrite|verbs.RemoteRead|verbs.RemoteWrite))
	if err != nil {
		t.Fatal(err)
	}
	untouched := w.command(onerma.Write, 7, 0, 64)
	untouched.Remote, untouched.Key = other.ID(), NewCipher(other.Grant(addrOf(0), 7, onerma.Write))
	former := w.command(onerma.Write, 7, 0, 64)
	rekey := w.command(onerma.Rekey, 8, 0, onerma.KeyLen)
	w.issue(q, rekey)
	w.run(w.now.Add(rtt + half - 1)) // the key arrives one nanosecond later
	w.issue(p, former)
	w.settle()
	w.want(w.done(q), OK)
	if got := w.done(p); got.Status != RemoteAuthenticationFailure || got.TotalDelay != rtt {
		t.Errorf("under the former key: %+v", got)
	}
	if w.regions[1].Key() != rekey.NewKey || w.nics[1].Stats().Rekeys != 1 {
		t.Errorf("key %x", w.regions[1].Key())
	}
	w.want(w.one(p, untouched), OK)
	// A WRITE that has been pulled when the key arrives.
	rekey = w.command(onerma.Rekey, 8, 0, onerma.KeyLen)
	rekey.NewKey = Key{4}
	w.filter = func(f *onerma.Frame, b []byte) ([]byte, time.Duration) {
		if f.Kind == onerma.Data && f.Op == onerma.Write {
			return b, rtt
		}
		return b, 0
	}
	before := bytes.Clone(w.memory[1])
	w.issue(q, rekey)
	w.issue(p, w.command(onerma.Write, 7, 0, 4096))
	w.issue(p, untouched)
	w.settle()
	w.want(w.done(q), OK)
	var out [4]Completion
	if k := p.Poll(out[:]); k != 2 || out[0].Status != RemoteAuthenticationFailure || out[1].Status != OK {
		t.Errorf("%+v", out[:k])
	}
	if !bytes.Equal(before, w.memory[1]) {
		t.Error("bytes under the former key have landed")
	}
	w.want(w.one(p, w.command(onerma.Read, 7, 0, 64)), OK)
}

// A READ that waits in the target when the key is replaced is refused, and so are its later pieces.
func TestReadsEndAtARekey(t *testing.T) {
	w := newWorld(t, 2, func(_ int, c *Config) { c.Rate, c.LinkMTU, c.Threshold = 1_000_000_000, 1500, 65536 })
	p := w.portal(0, 7, 4)
	for range 2 {
		w.issue(p, w.command(onerma.Read, 7, 0, 4096))
	}
	w.run(w.now.Add(half + 1)) // the first piece has been sent
	if err := w.nics[1].SetKey(w.regions[1], Key{5}); err != nil {
		t.Fatal(err)
	}
	w.settle()
	var out [4]Completion
	if k := p.Poll(out[:]); k != 2 || out[0].Status != RemoteAuthenticationFailure || out[1].Status != RemoteAuthenticationFailure {
		t.Errorf("%+v", out[:k])
	}
	if w.nics[1].inbound != 0 {
		t.Errorf("%d bytes wait", w.nics[1].inbound)
	}
}

// Operations that a target has accepted go on when it rotates the key: WRITEs that wait for the window, WRITEs
// whose data are on their way, and READs. Requests under the former key are refused from then on, and a
// SetKey after the rotation ends what began before it.
func TestRotationLetsOperationsEnd(t *testing.T) {
	for _, revoked := range []bool{false, true} {
		w := newWorld(t, 2, func(_ int, c *Config) {
			c.Rate, c.LinkMTU, c.Threshold, c.Window = 1_000_000_000, 1500, 65536, 8192
			c.DispatchTimeout, c.Timeout = time.Millisecond, 10*time.Millisecond
		})
		p := w.portal(0, 7, 8)
		for i := range uint64(4) {
			w.issue(p, w.command(onerma.Write, 7, i*4096, 4096))
		}
		w.issue(p, w.command(onerma.Read, 7, 8*4096, 4096))
		former := w.command(onerma.Write, 7, 0, 64)
		w.run(w.now.Add(half + 1)) // two WRITEs are pulled, two wait, and the READ's first piece is sent
		if err := w.nics[1].Rotate(w.regions[1], Key{5}); err != nil {
			t.Fatal(err)
		}
		if revoked {
			if err := w.nics[1].SetKey(w.regions[1], Key{6}); err != nil {
				t.Fatal(err)
			}
		}
		w.settle()
		var out [8]Completion
		k := p.Poll(out[:])
		for _, c := range out[:k] {
			if (c.Status == OK) == revoked {
				t.Errorf("revoked %v: %+v", revoked, c)
			}
		}
		if err := w.same(0, 4*4096); k != 5 || (err == nil) == revoked {
			t.Errorf("revoked %v: %d completions, %v", revoked, k, err)
		}
		w.want(w.one(p, former), RemoteAuthenticationFailure)
		w.want(w.one(p, w.command(onerma.Write, 7, 0, 64)), OK)
	}
}

// A region that is gone is not touched, and one that commands use is not given up.
func TestDeregister(t *testing.T) {
	w := newWorld(t, 2, nil)
	p := w.portal(0, 7, 4)
	w.issue(p, w.command(onerma.Write, 7, 0, 64))
	if err := w.nics[0].Deregister(w.regions[0]); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("local memory in use: %v", err)
	}
	w.run(w.now.Add(rtt + 1)) // it has been pulled
	if err := w.nics[1].Deregister(w.regions[1]); err != nil {
		t.Fatal(err)
	}
	before := bytes.Clone(w.memory[1])
	w.settle()
	w.want(w.done(p), Timeout)
	c := w.command(onerma.Read, 7, 0, 64)
	w.want(w.one(p, c), RemoteAuthenticationFailure)
	if !bytes.Equal(before, w.memory[1]) {
		t.Error("the memory has changed")
	}
	if err := w.nics[0].Deregister(w.regions[0]); err != nil {
		t.Error(err)
	}
	if err := p.Issue(w.now, c); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("local memory that is gone: %v", err)
	}
}

// A closed portal gives back everything, and its commands move nothing any more.
func TestClose(t *testing.T) {
	w := newWorld(t, 2, func(_ int, c *Config) { c.Window = 4096 })
	for range 100 {
		p := w.portal(0, 7, 64)
		for range 3 {
			w.issue(p, w.command(onerma.Read, 7, 0, 4096))
			w.issue(p, w.command(onerma.Write, 7, 0, 4096))
		}
		w.run(w.now.Add(rtt + half/2))
		p.Close()
		p.Close()
		if w.regions[0].uses != 0 || p.Poll(make([]Completion, 8)) != 0 || p.Issue(w.now, w.command(onerma.Read, 7, 0, 1)) == nil {
			t.Fatal("a closed portal does something")
		}
	}
	w.settle()
	for i, n := range w.nics {
		if used, _ := n.Window(); used != 0 || n.inbound != 0 || len(n.freeSlots) != 64 || len(n.freeTickets) != 64 {
			t.Errorf("NIC %d: %d bytes outstanding, %d inbound, %d slots, %d tickets free", i, used, n.inbound, len(n.freeSlots), len(n.freeTickets))
		}
	}
}

// A NIC that restarts with a larger epoch goes on with counters that it has never used, and one that
// has used up its counters sends nothing.
func TestCountersNeverRepeat(t *testing.T) {
	w := newWorld(t, 2, nil)
	for epoch := range uint32(3) {
		p := w.portal(0, 7, 4)
		for range 100 {
			w.want(w.one(p, w.command(onerma.Write, 7, 0, 64)), OK) // the harness checks counters
		}
		w.restart(0, epoch+1)
	}
	p := w.portal(0, 7, 4)
	w.nics[0].egress.sealer.count = 1<<countBits - 2
	w.want(w.one(p, w.command(onerma.Read, 7, 0, 64)), OK)
	w.want(w.one(p, w.command(onerma.Read, 7, 0, 64)), Timeout)
	if s := w.nics[0].Stats(); s.Exhausted != 1 {
		t.Errorf("%+v", s)
	}
}

func TestBadCommandsAndConfigs(t *testing.T) {
	w := newWorld(t, 2, nil)
	p := w.portal(0, 7, 1)
	readOnly, err := w.nics[0].Register(register(t, w.tables[0], make([]byte, 64), verbs.RemoteRead))
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Command){
		"operation":       func(c *Command) { c.Op = 4 },
		"length 0":        func(c *Command) { c.Length = 0 },
		"length 4097":     func(c *Command) { c.Length = 4097 },
		"class":           func(c *Command) { c.Class = 2 },
		"key":             func(c *Command) { c.Key = nil },
		"itself":          func(c *Command) { c.Target = addrOf(0) },
		"no target":       func(c *Command) { c.Target = addrOf(0).Next().Unmap().Prev() },
		"no local region": func(c *Command) { c.Local = nil },
		"another's":       func(c *Command) { c.Local = w.regions[1] },
		"local bounds":    func(c *Command) { c.LocalOffset = 64<<10 - 1 },
		"local rights":    func(c *Command) { c.Local = readOnly },
		"rekey of 17":     func(c *Command) { c.Op, c.Length, c.Local = onerma.Rekey, 17, nil },
		"rekey, local":    func(c *Command) { c.Op, c.Length = onerma.Rekey, 16 },
	} {
		c := w.command(onerma.Read, 7, 0, 64)
		change(c)
		if err := p.Issue(w.now, c); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.issue(p, w.command(onerma.Read, 7, 0, 64))
	if err := p.Issue(w.now, w.command(onerma.Read, 7, 0, 64)); !errors.Is(err, verbs.ErrLimit) {
		t.Errorf("no slot is free: %v", err)
	}
	for name, change := range map[string]func(*Config){
		"Rand":     func(c *Config) { c.Rand = nil },
		"address":  func(c *Config) { c.Addr = addrOf(0).Next().Prev(); c.MAC = wire.MAC{1} },
		"epoch":    func(c *Config) { c.Epoch = MaxEpoch + 1 },
		"negative": func(c *Config) { c.Slots = -1 },
		"MTU":      func(c *Config) { c.LinkMTU = minMTU - 1 },
		"window":   func(c *Config) { c.Window = 4095 },
		"time-out": func(c *Config) { c.Timeout = 4*rtt - 1 },
		"long":     func(c *Config) { c.Timeout = 2 * time.Second },
		"table":    func(c *Config) { c.Slots = 1 << 20 },
	} {
		c := configOf(0)
		change(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
