package pipeline

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// The bounds of a configuration are inclusive, and zero fields stand for the documented defaults.
func TestBoundsOfAConfiguration(t *testing.T) {
	p := &testProgram{}
	for what, c := range map[string]struct {
		cfg Config
		ok  bool
	}{
		"one port":           {Config{Ports: 1, Program: p}, true},
		"no port":            {Config{Program: p}, false},
		"all ports":          {Config{Ports: MaxPorts, Program: p}, true},
		"too many ports":     {Config{Ports: MaxPorts + 1, Program: p}, false},
		"no program":         {Config{Ports: 1}, false},
		"negative MaxMACs":   {Config{Ports: 1, Program: p, MaxMACs: -1}, false},
		"negative MaxFlows":  {Config{Ports: 1, Program: p, MaxFlows: -1}, false},
		"negative MaxHeld":   {Config{Ports: 1, Program: p, MaxHeld: -1}, false},
		"negative Ageing":    {Config{Ports: 1, Program: p, Ageing: -1}, false},
		"an address, no MAC": {Config{Ports: 1, Program: p, Self: Self{Addrs: []netip.Addr{ownIP4}}}, false},
	} {
		if _, err := New(c.cfg); (err == nil) != c.ok {
			t.Errorf("%s: %v", what, err)
		}
	}
	r := newRig(t, 2, &testProgram{packet: func(c *Ctx, p *Parsed) Verdict { return c.Hold(p, clock.Never) }}, nil)
	if macs, flows := r.Bounds(); macs != 4096 || flows != 4096 {
		t.Errorf("%d addresses, %d flows", macs, flows)
	}
	for range 1025 {
		r.send(0, roce(0, 1, 1, "x"))
	}
	if c, _ := r.Counters(); c.Held != 1024 || r.Port(0).Drops[ReasonHoldFull] != 1 {
		t.Errorf("%d packets are held, %v", c.Held, r.Port(0).Drops)
	}
}

// Ports and flows count the bytes of frames, and flows are those of one address family, source,
// destination and queue pair.
func TestCountersOfBytes(t *testing.T) {
	r, _ := withProgram(t, nil)
	before := [2]PortCounters{r.Port(0), r.Port(1)}
	six := func(src, dst byte) []byte {
		f := roceFrame(0, 1, 1, "six")
		f.V6, f.IPv6 = true, wire.IPv6{HopLimit: 1, Src: [16]byte{0xfd, 15: src}, Dst: [16]byte{0xfd, 15: dst}}
		return f.AppendTo(nil)
	}
	var want []Flow
	add := func(at clock.Time, src, dst string, n int, b []byte) {
		r.now = at
		for range n {
			r.send(0, b)
		}
		want = append(want, Flow{
			Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst), QPN: 0x11, Packets: uint64(n), Bytes: uint64(n * len(b)), Age: 100 - time.Duration(at), Idle: 100 - time.Duration(at),
		})
	}
	add(10, "10.0.0.0", "10.0.0.1", 5, roce(0, 1, 1, "payload"))
	add(20, "10.0.0.0", "10.0.0.2", 4, roce(0, 2, 1, "x"))
	add(30, "fd00::1", "fd00::2", 3, six(1, 2))
	add(40, "fd00::1", "fd00::3", 2, six(1, 3))
	r.now = 60
	r.send(0, roce(0, 1, 1, "payload"))
	want[0].Packets, want[0].Bytes, want[0].Idle = 6, want[0].Bytes/5*6, 40
	r.now = 100
	r.send(2, plain(mac(2), mac(1)))
	if got := r.Flows(); !slices.Equal(got, want) {
		t.Errorf("flows\n%+v, want\n%+v", got, want)
	}
	bytes := uint64(0)
	for _, f := range want {
		bytes += f.Bytes
	}
	if got := r.Port(0).RxBytes - before[0].RxBytes; got != bytes {
		t.Errorf("port 0 received %d bytes, want %d", got, bytes)
	}
	sent := bytes - want[1].Bytes + uint64(len(plain(mac(2), mac(1))))
	if got := r.Port(1).TxBytes - before[1].TxBytes; got != sent {
		t.Errorf("port 1 sent %d bytes, want %d", got, sent)
	}
	if n := r.ForgetFlows(); n != 4 || len(r.Flows()) != 0 {
		t.Errorf("%d flows forgotten, %v left", n, r.Flows())
	}
	if r.send(0, roce(0, 1, 1, "payload")); len(r.Flows()) != 1 || r.Flows()[0].Packets != 1 {
		t.Errorf("a forgotten flow goes on: %+v", r.Flows())
	}
}

// Only the sixteen addresses that IEEE 802.1Q reserves stay on the link.
func TestReservedAddresses(t *testing.T) {
	r, _ := withProgram(t, nil)
	for last := range 0x12 {
		want := "[]"
		if last >= 0x10 {
			want = "[1 2]"
		}
		r.want("reserved", r.send(0, plain(mac(0), wire.MAC{1, 0x80, 0xc2, 0, 0, byte(last)})), want)
	}
	if n := r.Port(0).Drops[ReasonReserved]; n != 16 {
		t.Errorf("%d drops", n)
	}
}

// A frame for a host behind a port that is down, or behind its own port, is dropped and counted; so
// is a frame for the switch itself. A program is told that such a packet was not sent.
func TestFramesThatGoNowhere(t *testing.T) {
	dst := wire.MAC{}
	p := &testProgram{packet: func(c *Ctx, p *Parsed) Verdict {
		p.Eth.Dst = dst
		if c.Emit(&p.Frame, "") {
			return Drop("sent")
		}
		return Drop("not sent")
	}}
	r := withSelf(t, p)
	for i := range 3 {
		r.send(i, plain(mac(i), broadcast))
	}
	r.SetPort(2, false)
	r.send(2, plain(mac(2), broadcast)) // it is learnt all the same
	for _, c := range []struct {
		what string
		dst  wire.MAC
		emit Reason
		drop Reason // of the same frame without the program; "": it is sent
	}{
		{"known", mac(1), "sent", ""},
		{"port down", mac(2), "not sent", ReasonPortDown},
		{"same port", mac(0), "sent", ReasonSamePort}, // what the switch makes has no port
		{"reserved", wire.MAC{1, 0x80, 0xc2, 0, 0, 1}, "not sent", ReasonReserved},
		{"the switch", ownMAC, "not sent", ReasonSelf},
		{"unknown", mac(77), "sent", ""},
	} {
		dst = c.dst
		before := r.Port(0).Drops
		r.send(0, roce(0, 1, 1, "x"))
		if n := r.Port(0).Drops[c.emit] - before[c.emit]; n != 1 {
			t.Errorf("%s, emitted: %v, before %v", c.what, r.Port(0).Drops, before)
		}
		before = r.Port(0).Drops
		got := r.send(0, plain(mac(0), c.dst))
		if (got == "[]") != (c.drop != "") || c.drop != "" && r.Port(0).Drops[c.drop]-before[c.drop] != 1 {
			t.Errorf("%s: left at %s, drops %v, before %v", c.what, got, r.Port(0).Drops, before)
		}
	}
	r.SetPort(1, false)
	r.SetPort(0, false)
	dst = mac(77)
	before := r.Port(0).Drops["not sent"]
	if r.send(0, roce(0, 1, 1, "x")); r.Port(0).Drops["not sent"] != before+1 {
		t.Error("a packet for no port counts as sent")
	}
}

// The longest packet that a program may make, hold or rewrite is 9234 bytes long.
func TestLongestPackets(t *testing.T) {
	const most = 9216 + 18
	for _, more := range []int{0, 4} {
		long := roceFrame(0, 1, 1, string(make([]byte, most-58+more)))
		if long.Len() != most+more {
			t.Fatalf("%d bytes", long.Len())
		}
		want := map[bool]string{true: "[1]", false: "[]"}[more == 0]
		r, _ := withProgram(t, func(c *Ctx, _ *Parsed) Verdict {
			if c.Emit(long, "") != (more == 0) {
				t.Errorf("%d bytes were made", long.Len())
			}
			return Consume()
		})
		r.want("emit", r.send(0, roce(0, 1, 1, "x")), want)
		c, lost := r.Counters()
		if c.Emitted != uint64(1-more/4) || lost[ReasonTooLong] != uint64(more/4) || c.Consumed != 1 {
			t.Errorf("%+v, lost %v", c, lost)
		}
		r, _ = withProgram(t, func(_ *Ctx, p *Parsed) Verdict {
			p.Payload = long.Payload
			return Rewrite()
		})
		r.want("rewrite", r.send(0, roce(0, 1, 1, "x")), want)
		if c, _ := r.Counters(); c.Rewritten != uint64(1-more/4) || r.Port(0).Drops[ReasonTooLong] != uint64(more/4) {
			t.Errorf("%+v, dropped %v", c, r.Port(0).Drops)
		}
		r, _ = withProgram(t, func(c *Ctx, p *Parsed) Verdict { return c.Hold(p, 10) })
		r.send(0, long.AppendTo(nil))
		if c, _ := r.Counters(); c.Held != uint64(1-more/4) || r.Port(0).Drops[ReasonTooLong] != uint64(more/4) {
			t.Errorf("%+v, dropped %v", c, r.Port(0).Drops)
		}
	}
}

// Slots of held packets are used again, each by one packet at a time, and an ID names one packet
// forever.
func TestSlotsOfHeldPackets(t *testing.T) {
	h := holds{max: 3}
	data := map[HoldID]string{}
	add := func(text string) HoldID {
		t.Helper()
		id := h.add(1, []byte(text), clock.Never)
		if id == 0 || data[id] != "" {
			t.Fatalf("%q gets the ID %d", text, id)
		}
		data[id] = text
		return id
	}
	check := func(live ...HoldID) {
		t.Helper()
		for id, text := range data {
			if s := h.get(id); (s != nil) != slices.Contains(live, id) || s != nil && string(s.data) != text {
				t.Errorf("packet %q: %+v", text, s)
			}
		}
	}
	a, b := add("a"), add("b")
	check(a, b)
	h.remove(b)
	check(a)
	c := add("c")
	check(a, c)
	h.remove(a)
	h.remove(c)
	d, e, f := add("d"), add("e"), add("f")
	check(d, e, f)
	if h.add(1, nil, clock.Never) != 0 {
		t.Error("there is room for a fourth packet")
	}
	for _, id := range []HoldID{0, 3, 1<<32 | 3, 9 << 32, d + 1<<32} {
		if data[id] == "" && h.get(id) != nil {
			t.Errorf("%d names a packet", id)
		}
	}
	h.remove(e)
	add("g")
	if h.add(1, nil, clock.Never) != 0 {
		t.Error("a slot is used twice")
	}
}

// A queue is bounded by packets, by bytes, by both or by nothing, and its bounds are inclusive.
func TestBoundsOfQueues(t *testing.T) {
	one := packetio.Frame{Data: make([]byte, 100)}
	for _, c := range []struct{ packets, bytes, want int }{{0, 0, 10}, {4, 0, 4}, {1, 0, 1}, {0, 300, 3}, {0, 399, 3}, {0, 1, 1}, {5, 200, 2}, {2, 500, 2}} {
		q := Queue{MaxPackets: c.packets, MaxBytes: c.bytes}
		n := 0
		for range 10 {
			if q.Offer(one) {
				n++
			}
		}
		if n != c.want || q.Len() != c.want {
			t.Errorf("%+v: %d frames", c, n)
		}
	}
	var q Queue
	if packets, bytes, refused, err := q.Flush(nil); packets != 0 || bytes != 0 || refused != 0 || err != nil {
		t.Errorf("an empty queue: %d, %d, %d, %v", packets, bytes, refused, err)
	}
}

// An address is known for as long as Ageing after its last frame, also a host that only goes on
// talking; a host behind a port that was down is learnt again from its next frame.
func TestAgeOfAddresses(t *testing.T) {
	r := newRig(t, 3, &testProgram{}, func(c *Config) { c.Ageing, c.MaxMACs = 100, 3 })
	r.send(1, plain(mac(1), broadcast))
	r.now = 90
	r.send(1, plain(mac(1), broadcast))
	r.now = 190
	r.want("at its age", r.send(0, plain(mac(0), mac(1))), "[1]")
	if m := r.MACs(); len(m) != 2 || m[0] != (MAC{mac(0), 0, 0}) || m[1] != (MAC{mac(1), 1, 100}) {
		t.Errorf("%+v", m)
	}
	r.now = 191
	r.want("behind it", r.send(0, plain(mac(0), mac(1))), "[1 2]")
	if m := r.MACs(); len(m) != 1 {
		t.Errorf("%+v", m)
	}
	for range 3 {
		r.send(1, plain(mac(1), broadcast))
		r.send(2, plain(mac(2), broadcast))
		r.want("known", r.send(0, plain(mac(0), mac(1))), "[1]")
		r.SetPort(1, true) // it is up
		r.want("still known", r.send(0, plain(mac(0), mac(1))), "[1]")
		r.SetPort(1, false)
		r.SetPort(1, true)
		r.want("forgotten", r.send(0, plain(mac(0), mac(1))), "[1 2]")
		r.want("the other one", r.send(0, plain(mac(0), mac(2))), "[2]")
	}
	// A full database makes room for a new address as soon as an old one has aged.
	r.send(1, plain(mac(1), broadcast))
	r.now += 100
	r.send(2, plain(mac(4), broadcast))
	if c, _ := r.Counters(); c.MACs != 3 || c.MACFull != 1 {
		t.Errorf("%+v", c)
	}
	r.now += clock.Time(time.Second)
	r.send(2, plain(mac(4), broadcast))
	if c, _ := r.Counters(); c.MACs != 1 || c.MACFull != 1 {
		t.Errorf("%+v", c)
	}
	if n := r.ForgetMACs(); n != 1 || len(r.MACs()) != 0 {
		t.Errorf("%d forgotten", n)
	}
}

// Ports are added up to MaxPorts. A new port is down, and in no partition.
func TestAddedPorts(t *testing.T) {
	r := newRig(t, 3, &testProgram{}, nil)
	r.Partition([]int{0, 1, 0})
	n := r.AddPort()
	r.want("down", r.send(0, plain(mac(0), broadcast)), "[2]")
	r.SetPort(n, true)
	r.want("up", r.send(0, plain(mac(0), broadcast)), "[2 3]")
	r.want("from it", r.send(n, plain(mac(3), broadcast)), "[0 1 2]")
	r.want("to it", r.send(1, plain(mac(1), mac(3))), "[3]")
	for i := n + 1; i < MaxPorts; i++ {
		if r.AddPort() != i {
			t.Fatalf("port %d", i)
		}
	}
	if r.AddPort() != -1 {
		t.Error("one port too many")
	}
	before := r.Port(2).Drops[ReasonFault]
	for _, port := range []int{-1, 0, 2, MaxPorts - 1, MaxPorts} {
		r.CountDrop(port, ReasonFault, 3) // a port that does not exist counts nothing
	}
	for _, port := range []int{0, 2, MaxPorts - 1} {
		if got := r.Port(port).Drops[ReasonFault]; got != before+3 {
			t.Errorf("port %d: %d drops", port, got)
		}
	}
}

// A program may ask whether a partition stops a frame: it does so only between groups, and never
// if the switch does not know the host.
func TestAllowedByPartitions(t *testing.T) {
	var got []bool
	r, _ := withProgram(t, func(c *Ctx, p *Parsed) Verdict {
		for i := range 4 {
			got = append(got, c.Allowed(p.Ingress, mac(i)))
		}
		return Consume()
	})
	for _, c := range []struct {
		group []int
		in    int
		want  []bool
	}{
		{nil, 1, []bool{true, true, true, true}},
		{[]int{0, 1, 1}, 1, []bool{false, true, true, true}},
		{[]int{0, 1, 1}, 0, []bool{true, false, false, true}},
		{[]int{0, 1}, 2, []bool{true, true, true, true}},
	} {
		r.Partition(c.group)
		got = nil
		if r.send(c.in, roce(c.in, 1, 1, "x")); !slices.Equal(got, c.want) {
			t.Errorf("%v from port %d: %v, want %v", c.group, c.in, got, c.want)
		}
	}
}

// An operator's command makes the program send packets, in a step of its own.
func TestStep(t *testing.T) {
	r, _ := withProgram(t, nil)
	r.send(0, roce(0, 1, 1, "x"))
	r.now = 50
	r.out.Reset()
	r.Step(r.now, &r.out, func(c *Ctx) {
		if c.Now != 50 || c.Ports() != 3 || c.EmitsLeft() != maxEmit {
			t.Errorf("%+v", c)
		}
		c.Emit(roceFrame(0, 2, 1, "made"), "")
	})
	r.want("made", r.left(), "[2]")
	if got := r.peers(); got != `out2 "made by " -1` {
		t.Errorf("notes %s", got)
	}
}

// The switch knows when the last delayed frame arrives.
func TestDelayedFrames(t *testing.T) {
	var got clock.Time
	r, _ := withProgram(t, func(c *Ctx, _ *Parsed) Verdict { got = c.DelayedUntil(); return Forward() })
	for _, at := range []clock.Time{50, 70, 60} {
		r.Delayed(at)
	}
	if r.send(0, roce(0, 1, 1, "x")); got != 70 {
		t.Errorf("delayed until %v", got)
	}
}

// A super-frame has no payload for the program, whether of two packets or of more.
func TestPayloadOfSuperFrames(t *testing.T) {
	for n := 1; n < 4; n++ {
		f, _ := superOf(n)
		if n == 1 {
			f.SegSize = 0
		}
		r, _ := withProgram(t, func(_ *Ctx, p *Parsed) Verdict {
			if (p.Payload == nil) != (n > 1) || p.Packets != n {
				t.Errorf("%d packets: %d bytes of payload", p.Packets, len(p.Payload))
			}
			return Forward()
		})
		r.sendFrame(0, f)
	}
}

// Notes about received frames and about what the switch makes name no port, and no note outlasts its
// frame.
func TestNotesEnd(t *testing.T) {
	var id HoldID
	r, p := withProgram(t, func(c *Ctx, p *Parsed) Verdict {
		switch p.BTH.PSN {
		case 1:
			v := c.Hold(p, 100)
			id = v.ID
			return v
		case 2:
			c.Release(id, nil, "goes")
			c.Emit(&p.Frame, "first")
			c.Emit(&p.Frame, "")
			return Forward()
		case 3:
			p.BTH.PSN = 4
			c.Emit(&p.Frame, "")
			return Rewrite().With("moved")
		case 5:
			return Forward().With("seen")
		}
		return Forward()
	})
	r.program.spec.Name, p.spec.Name = "test", "test"
	quiet := func(after any) {
		t.Helper()
		r.want("another frame", r.send(2, plain(mac(2), mac(1))), "[1]")
		if got := r.peers(); got != "" {
			t.Errorf("a frame after %v: %s", after, got)
		}
	}
	for _, s := range []struct {
		psn  wire.PSN
		want string
	}{
		{1, `in "held by test" -1`},
		{2, `out1 "goes" 0; out1 "first" -1; out1 "made by test" -1`},
		{3, `out1 "made by test" -1; in "moved" 1; out1 "moved" 0`},
		{5, `in "seen" 1; out1 "seen" 0`},
	} {
		r.send(0, roce(0, 1, s.psn, "x"))
		got := r.peers()
		if got != s.want {
			t.Errorf("psn %d: %s, want %s", s.psn, got, s.want)
		}
		quiet(s.psn)
	}
	// A held packet whose time is over, and a packet that the program makes at the same time.
	r.send(0, roce(0, 1, 1, "x"))
	p.tick = func(c *Ctx) { c.Emit(roceFrame(0, 2, 1, "x"), "by tick") }
	r.now = 100
	r.tick()
	if got := r.peers(); got != `out1 "held until its time" 0; out2 "by tick" -1` {
		t.Errorf("at the deadline: %s", got)
	}
	p.tick = nil
	quiet("the deadline")
	// One that is held while another program is loaded goes once.
	r.send(0, roce(0, 1, 1, "x"))
	r.send(0, roce(0, 1, 1, "x"))
	r.send(0, roce(0, 1, 2, "x")) // takes the second
	r.now = 150
	r.out.Reset()
	if err := r.Load(r.now, &testProgram{}, Self{}, &r.out); err != nil {
		t.Fatal(err)
	}
	if got := r.peers(); got != `out1 "held until its program was replaced" 0` {
		t.Errorf("loaded: %s", got)
	}
	quiet("the other program")
	if r.Deadline() != clock.Never {
		t.Errorf("deadline %v", r.Deadline())
	}
	r.now = 300
	r.want("nothing is held", r.tick(), "[]")
}
