package nic

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// Both NICs count the messages and bytes of their operations, and what they have served.
func TestStatsOfOperations(t *testing.T) {
	w := newWorld(t, 2, func(_ int, c *Config) { c.LinkMTU = 1500 })
	w.keep = true
	p := w.portal(0, 7, 4)
	for _, op := range []onerma.Op{onerma.Read, onerma.Write, onerma.Rekey} {
		activity := w.nics[0].Activity()
		n := 4096
		if op == onerma.Rekey {
			n = onerma.KeyLen
		}
		if w.want(w.one(p, w.command(op, 7, 0, n)), OK); w.nics[0].Activity() == activity {
			t.Errorf("%v: no activity", op)
		}
	}
	var want [2]Stats
	for _, b := range w.sent {
		var f onerma.Frame
		if err := onerma.ParseFrame(b, &f); err != nil {
			t.Fatal(err)
		}
		from := 0
		if f.IPv4.Src == addrOf(1).As4() {
			from = 1
		}
		want[from].Sent++
		want[from].SentBytes += uint64(len(b))
		want[1-from].Received++
		want[1-from].ReceivedBytes += uint64(len(b))
	}
	want[0].Ended[OK], want[1].Served, want[1].Rekeys = 3, 3, 1
	for i := range want {
		if got := w.nics[i].Stats(); got != want[i] {
			t.Errorf("NIC %d: %+v\nwant %+v", i, got, want[i])
		}
		if at := w.nics[i].Deadline(); at != clock.Never {
			t.Errorf("NIC %d waits until %v", i, at)
		}
	}
}

// tampered is a change of a message on its way, and what the NICs make of it.
var tampered = []struct {
	name   string
	op     onerma.Op
	kind   onerma.Kind
	change func(f *onerma.Frame, b []byte) []byte
	status Status
	count  func(initiator, target *Stats) uint64 // 1
}{
	{"request", onerma.Read, onerma.Request, flip, Timeout, func(_, s *Stats) uint64 { return s.AuthFails }},
	{"data of a READ", onerma.Read, onerma.Data, flip, Timeout, func(s, _ *Stats) uint64 { return s.Forged }},
	{"pull", onerma.Write, onerma.Pull, flip, Timeout, func(s, _ *Stats) uint64 { return s.Forged }},
	{"data of a WRITE", onerma.Write, onerma.Data, flip, Timeout, func(_, s *Stats) uint64 { return s.Forged }},
	{"done", onerma.Write, onerma.Done, flip, Timeout, func(s, _ *Stats) uint64 { return s.Forged }},
	{"READ of another slot", onerma.Read, onerma.Data, with(func(f *onerma.Frame) { f.Slot += 5 }), Timeout, func(s, _ *Stats) uint64 { return s.Stale }},
	{"READ of no slot", onerma.Read, onerma.Data, with(func(f *onerma.Frame) { f.Slot = 64 }), Timeout, func(s, _ *Stats) uint64 { return s.Stale }},
	{"READ of another command", onerma.Read, onerma.Data, with(func(f *onerma.Frame) { f.Generation++ }), Timeout, func(s, _ *Stats) uint64 { return s.Stale }},
	{"READ of another length", onerma.Read, onerma.Data, with(func(f *onerma.Frame) { f.Length += 64 }), Timeout, func(s, _ *Stats) uint64 { return s.Stale }},
	{"READ from another NIC", onerma.Read, onerma.Data, with(func(f *onerma.Frame) { f.IPv4.Src[3] = 99 }), Timeout, func(s, _ *Stats) uint64 { return s.Stale }},
	{"pull of another command", onerma.Write, onerma.Pull, with(func(f *onerma.Frame) { f.Generation++ }), Timeout, func(s, _ *Stats) uint64 { return s.Stale }},
	{"done of another ticket", onerma.Write, onerma.Done, with(func(f *onerma.Frame) { f.Ticket++ }), Timeout, func(s, _ *Stats) uint64 { return s.Stale }},
	{"WRITE from another NIC", onerma.Write, onerma.Data, with(func(f *onerma.Frame) { f.IPv4.Src[3] = 99 }), Timeout, func(_, s *Stats) uint64 { return s.Stale }},
	{"WRITE of another slot", onerma.Write, onerma.Data, with(func(f *onerma.Frame) { f.Slot++ }), Timeout, func(_, s *Stats) uint64 { return s.Stale }},
	{"WRITE of another command", onerma.Write, onerma.Data, with(func(f *onerma.Frame) { f.Generation++ }), Timeout, func(_, s *Stats) uint64 { return s.Stale }},
	{"WRITE of another length", onerma.Write, onerma.Data, with(func(f *onerma.Frame) { f.Length += 64 }), Timeout, func(_, s *Stats) uint64 { return s.Stale }},
	{"WRITE of no ticket", onerma.Write, onerma.Data, with(func(f *onerma.Frame) { f.Ticket = f.Ticket&^0xffff | 64 }), Timeout, func(_, s *Stats) uint64 { return s.Stale }},
	{"WRITE of another ticket", onerma.Write, onerma.Data, with(func(f *onerma.Frame) { f.Ticket++ }), Timeout, func(_, s *Stats) uint64 { return s.Stale }},
	{"WRITE of a former ticket", onerma.Write, onerma.Data, with(func(f *onerma.Frame) { f.Ticket -= 1 << 16 }), Timeout, func(_, s *Stats) uint64 { return s.Stale }},
	{"cut", onerma.Read, onerma.Request, func(_ *onerma.Frame, b []byte) []byte { return b[:len(b)-1] }, Timeout, func(_, s *Stats) uint64 { return s.Malformed }},
}

// flip damages the last byte of a message.
func flip(_ *onerma.Frame, b []byte) []byte {
	b[len(b)-1] ^= 1
	return b
}

// with changes the header of a message, as a NIC that has the sealed bytes can.
func with(change func(f *onerma.Frame)) func(*onerma.Frame, []byte) []byte {
	return func(f *onerma.Frame, _ []byte) []byte {
		x, sealed := *f, slices.Clone(f.Sealed)
		change(&x)
		return append(x.AppendOpen(nil, len(sealed)-onerma.TagLen), sealed...)
	}
}

// A message that was changed on its way completes nothing and moves no byte; the NIC that gets it
// counts it once, and what it held is free again after the timeout. Only the memory into which a READ
// puts its data may have zeros then (TestForgedDataOfARead says where).
func TestTamperedMessages(t *testing.T) {
	for _, c := range tampered {
		w := newWorld(t, 2, nil)
		done := false
		w.filter = func(f *onerma.Frame, b []byte) ([]byte, time.Duration) {
			if f.Kind == c.kind && !done {
				done = true
				return c.change(f, b), 0
			}
			return b, 0
		}
		p := w.portal(0, 7, 4)
		before := [][]byte{bytes.Clone(w.memory[0]), bytes.Clone(w.memory[1])}
		if got := w.one(p, w.command(c.op, 7, 0, 128)); got.Status != c.status && (c.name != "request" || got.Status != RemoteAuthenticationFailure) {
			t.Errorf("%s: %v", c.name, got.Status)
		}
		a, b := w.nics[0].Stats(), w.nics[1].Stats()
		if n := c.count(&a, &b); n != 1 {
			t.Errorf("%s: counted %d times\n%+v\n%+v", c.name, n, a, b)
		}
		if c.name == "data of a READ" && bytes.Equal(w.memory[0][:128], make([]byte, 128)) {
			copy(w.memory[0], before[0][:128])
		}
		if !bytes.Equal(before[0], w.memory[0]) || c.kind != onerma.Done && !bytes.Equal(before[1], w.memory[1]) {
			t.Errorf("%s: bytes have been moved", c.name)
		}
		for i, n := range w.nics {
			if used, _ := n.Window(); used != 0 || n.inbound != 0 || len(n.freeTickets) != 64 || n.Deadline() != clock.Never {
				t.Errorf("%s: NIC %d holds %d bytes, %d inbound, %d tickets are free", c.name, i, used, n.inbound, len(n.freeTickets))
			}
		}
		w.filter = nil
		w.want(w.one(p, w.command(c.op, 7, 0, 128)), OK)
	}
}

// Messages of operations that have ended are stale, on both NICs.
func TestLateMessages(t *testing.T) {
	w := newWorld(t, 2, nil)
	w.keep = true
	p := w.portal(0, 7, 4)
	w.want(w.one(p, w.command(onerma.Read, 7, 0, 64)), OK)
	w.want(w.one(p, w.command(onerma.Write, 7, 0, 64)), OK)
	w.keep = false
	before := [2]Stats{w.nics[0].Stats(), w.nics[1].Stats()}
	for _, b := range w.sent {
		var f onerma.Frame
		if err := onerma.ParseFrame(b, &f); err != nil {
			t.Fatal(err)
		}
		if f.Kind != onerma.Request {
			w.inject(0, b)
		}
	}
	w.settle()
	// The data of the READ, the pull and the end of the WRITE; the data of the WRITE.
	for i, want := range []uint64{3, 1} {
		if got := w.nics[i].Stats().Stale - before[i].Stale; got != want {
			t.Errorf("NIC %d: %d stale messages, want %d", i, got, want)
		}
	}
}

// Data that arrive twice are written once.
func TestCopiesOfData(t *testing.T) {
	for _, op := range []onerma.Op{onerma.Read, onerma.Write} {
		w := newWorld(t, 2, func(_ int, c *Config) { c.LinkMTU = 1500 })
		w.filter = func(f *onerma.Frame, b []byte) ([]byte, time.Duration) {
			if f.Kind == onerma.Data && f.At == 0 {
				w.inject(half, slices.Clone(b))
			}
			return b, 0
		}
		p := w.portal(0, 7, 4)
		w.want(w.one(p, w.command(op, 7, 0, 4096)), OK)
		if a, b := w.nics[0].Stats().Copies, w.nics[1].Stats().Copies; a+b != 1 || (a == 1) != (op == onerma.Read) {
			t.Errorf("%v: %d and %d copies", op, a, b)
		}
	}
}

// A frame to another MAC or IP address, from the NIC's own address, or in another VLAN is not for the
// NIC; one with a priority tag is.
func TestFramesForOthers(t *testing.T) {
	tag := func(tci byte) func(b []byte) []byte {
		return func(b []byte) []byte { return slices.Insert(b, 12, 0x81, 0, 0, tci) }
	}
	for name, c := range map[string]struct {
		change func(b []byte) []byte
		mine   bool
	}{
		"as it is":     {func(b []byte) []byte { return b }, true},
		"priority tag": {tag(0), true},
		"VLAN 5":       {tag(5), false},
		"another MAC":  {func(b []byte) []byte { b[5]++; return b }, false},
		"another IP":   {func(b []byte) []byte { b[14+19] += 50; return fixed(b) }, false},
		"from itself":  {func(b []byte) []byte { copy(b[14+12:14+16], b[14+16:14+20]); return fixed(b) }, false},
		"no IPv4":      {func(b []byte) []byte { b[12] = 0x86; return b }, false},
	} {
		w := newWorld(t, 2, nil)
		w.filter = func(f *onerma.Frame, b []byte) ([]byte, time.Duration) {
			if f.Kind == onerma.Request {
				b = c.change(b)
			}
			return b, 0
		}
		p := w.portal(0, 7, 4)
		status := Timeout
		if c.mine {
			status = OK
		}
		w.want(w.one(p, w.command(onerma.Read, 7, 0, 64)), status)
		if s := w.nics[1].Stats(); (s.Received == 1) != c.mine || s.Malformed != 0 {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// fixed corrects the checksum of an IPv4 header.
func fixed(b []byte) []byte {
	h := b[14 : 14+20]
	h[10], h[11] = 0, 0
	sum := uint32(0)
	for i := 0; i < len(h); i += 2 {
		sum += uint32(h[i])<<8 | uint32(h[i+1])
	}
	sum = sum>>16 + sum&0xffff
	sum = ^(sum>>16 + sum)
	h[10], h[11] = byte(sum>>8), byte(sum)
	return b
}

// A target gives up a WRITE whose data do not arrive after its timeout, and the initiator waits for
// that and a thirty-second part more. It serves no pull whose time is more than twice its own.
func TestTimesOfWrites(t *testing.T) {
	w := newWorld(t, 2, nil)
	w.filter = func(f *onerma.Frame, b []byte) ([]byte, time.Duration) {
		if f.Kind == onerma.Data {
			return nil, 0
		}
		return b, 0
	}
	p := w.portal(0, 7, 4)
	got := w.one(p, w.command(onerma.Write, 7, 0, 64))
	if w.want(got, Timeout); got.TotalDelay != rtt+4*rtt+4*rtt/32 || w.nics[1].Stats().Abandoned != 1 {
		t.Errorf("after %v; target %+v", got.TotalDelay, w.nics[1].Stats())
	}
	for _, more := range []time.Duration{0, 1} {
		w := newWorld(t, 2, func(i int, c *Config) {
			if i == 1 {
				c.Timeout = 8*rtt + more
			}
		})
		p := w.portal(0, 7, 4)
		got := w.one(p, w.command(onerma.Write, 7, 0, 64))
		if (got.Status == OK) != (more == 0) || w.nics[0].Stats().Refused != uint64(more) {
			t.Errorf("a pull of 8 RTT and %d ns: %v, %+v", more, got.Status, w.nics[0].Stats())
		}
	}
}

// A NIC that is down does nothing.
func TestDown(t *testing.T) {
	w := newWorld(t, 2, nil)
	p := w.portal(0, 7, 4)
	w.issue(p, w.command(onerma.Read, 7, 0, 64))
	n := w.nics[0]
	n.Down()
	before := n.Stats()
	n.Tick(w.now, &w.out)
	n.Frame(w.now, 0, packetio.Frame{Data: make([]byte, 100)}, &w.out)
	if len(w.out.Frames) != 0 || n.Stats() != before || n.Deadline() != clock.Never {
		t.Errorf("%d frames, %+v, deadline %v", len(w.out.Frames), n.Stats(), n.Deadline())
	}
	_, opened := n.Open(9, 1)
	_, registered := n.Register(w.regions[0].mem)
	for what, err := range map[string]error{
		"open": opened, "register": registered, "issue": p.Issue(w.now, w.command(onerma.Read, 7, 0, 64)),
		"set key": n.SetKey(w.regions[0], Key{}), "rotate": n.Rotate(w.regions[0], Key{}), "deregister": n.Deregister(w.regions[0]),
	} {
		if err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

// Forged data of a READ leaves zeros at most where data is still to come: bytes that have landed, bytes
// of other commands and the target's memory stay as they are, and the READ ends with the right bytes.
func TestForgedDataOfARead(t *testing.T) {
	for _, at := range []int{0, 1024, 2048, 3072} { // of four messages, the one that is forged
		w := newWorld(t, 2, func(_ int, c *Config) { c.LinkMTU = 1500 })
		p := w.portal(0, 7, 4)
		held, last := []byte(nil), 3072
		w.filter = func(f *onerma.Frame, b []byte) ([]byte, time.Duration) {
			if f.Kind == onerma.Data && int(f.At) == last {
				held = bytes.Clone(b)
				return nil, 0 // the READ waits for its last message
			}
			return b, 0
		}
		const offset, length = 4096, 4096
		w.issue(p, w.command(onerma.Read, 7, offset, length))
		w.run(w.now.Add(half * 3))
		before := [][]byte{bytes.Clone(w.memory[0]), bytes.Clone(w.memory[1])}
		if held == nil || w.same(offset, last) != nil {
			t.Fatalf("the first %d bytes have not landed", last)
		}
		var f onerma.Frame
		if err := onerma.ParseFrame(held, &f); err != nil {
			t.Fatal(err)
		}
		forged := with(func(f *onerma.Frame) { f.At = uint16(at) })(&f, nil)
		w.nics[0].Frame(w.now, 0, packetio.Frame{Data: flip(nil, forged)}, &w.out)
		if n := w.nics[0].Stats().Forged; n != 1 {
			t.Errorf("forged at %d: counted %d times", at, n)
		}
		clear(before[0][offset+last:][:length-last])
		clear(w.memory[0][offset+last:][:length-last]) // zeros or the earlier bytes
		if !bytes.Equal(before[0], w.memory[0]) || !bytes.Equal(before[1], w.memory[1]) {
			t.Errorf("forged at %d: other memory has changed", at)
		}
		w.nics[0].Frame(w.now, 0, packetio.Frame{Data: held}, &w.out)
		w.settle()
		w.want(w.done(p), OK)
		if err := w.same(offset, length); err != nil {
			t.Error(err)
		}
	}
}
