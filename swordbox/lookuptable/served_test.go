package lookuptable

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memgrant"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

const (
	regionAddr = 0x7000_0000
	regionKey  = 0x1234
	firstQPN   = 0x50 // of the servers' queue pairs
	firstOwn   = 0x70 // of the switch's
	portOfFrom = 1    // of cn0, whose packets are looked up
	portOfMem  = 2    // of the servers
)

// served is a machine whose requests go as packets to the memory of servers, which executes them.
type served struct {
	t       *testing.T
	sw      *pipeline.Switch
	now     clock.Time
	m       *Machine
	servers map[netip.Addr]*memoryServer
	failed  []string
	notes   []string
	// left are the frames of the host that have left the switch, with their port.
	left []packetio.Frame
	// answers are on their way to the switch; held: until the test lets them go.
	answers []wire.Frame
	held    bool
	inside  bool
	qpns    int
}

// memoryServer is a server that lends memory to the switch.
type memoryServer struct {
	memory    []byte
	qpn, own  wire.QPN
	psn       wire.PSN
	msn       uint32
	deaf      bool
	connected uint32 // how often
	boot      uint64 // incarnation of the service
	requests  []wire.Frame
}

func newServed(t *testing.T, rule string) *served {
	t.Helper()
	s := &served{t: t, now: clock.Time(time.Second), servers: map[netip.Addr]*memoryServer{}}
	var err error
	if s.sw, err = pipeline.New(pipeline.Config{Ports: 3, Program: noProgram{}}); err != nil {
		t.Fatal(err)
	}
	var out packetio.Batch // the switch learns where the servers are
	s.sw.Frame(s.now, portOfMem, packetio.Frame{Data: append([]byte{255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 3}, make([]byte, 50)...)}, &out)
	s.sw.Observe(true)
	s.m = Kind.New(&handler.Env{
		Port:   func(netip.Addr) int { return portOfFrom },
		MAC:    func(netip.Addr) (wire.MAC, bool) { return wire.MAC{2, 9, 9}, true },
		Failed: func(_ *pipeline.Ctx, _ switchconn.Key, _ uint32, why string) { s.failed = append(s.failed, why) },
	}).(*Machine)
	s.rule(rule)
	return s
}

// rule replaces the rules by one for cn0; "": none.
func (s *served) rule(text string) {
	s.t.Helper()
	var list []string
	if text != "" {
		list = append(list, "id=r server=cn0 action=lookup "+text)
	}
	set, err := ruleSet(s.t, list...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.m.SetRules(set)
}

// attach connects the switch to all servers.
func (s *served) attach() {
	s.t.Helper()
	for _, l := range slices.Clone(s.m.Links.All) {
		if l.Needed() && !s.offer(l, 4096) {
			s.t.Fatalf("the connection to %v is not used: %s", l.Key().Server, l.Why())
		}
	}
}

// offer offers a connection to a server with a path MTU.
func (s *served) offer(l *Link, mtu int) (ok bool) {
	s.t.Helper()
	k := s.servers[l.Key().Server]
	if k == nil {
		k = &memoryServer{memory: make([]byte, 1<<16)}
		s.servers[l.Key().Server] = k
	}
	k.qpn, k.own, k.psn, k.msn = wire.QPN(firstQPN+s.qpns), wire.QPN(firstOwn+s.qpns), wire.PSN(100*s.qpns), 0
	k.connected++
	s.qpns++
	depth := 4
	if l.table != nil {
		depth = max(depth, l.table.Depth)
	}
	g := memgrant.Grant{Boot: k.boot, Region: memgrant.Region{Addr: regionAddr, RKey: regionKey, Len: len(k.memory)}}
	var to wire.Frame
	to.Eth = wire.Ethernet{Src: wire.MAC{2, 0, 0, 0, 0, 9}, Dst: wire.MAC{2, 0, 0, 0, 0, 3}}
	to.IPv4 = wire.IPv4{Src: [4]byte{10, 0, 0, 9}, Dst: l.Key().Server.As4(), TTL: 64, DF: true}
	to.BTH = wire.BTH{PKey: wire.DefaultPKey, DestQP: k.qpn}
	x := switchconn.Shared{
		Key: l.Key(), Generation: k.connected, ServerQPN: k.qpn, OwnQPN: k.own, SendPSN: k.psn, RecvPSN: k.psn, MTU: mtu, Depth: depth, To: to,
		Answer: g.AppendTo([]byte{memgrant.Version, memgrant.Kind}),
	}
	s.step(func(c *pipeline.Ctx) { ok = s.m.Attach(c, x) && l.srv.Up() })
	return ok
}

// step runs a step; the servers execute the requests that they get, and their answers arrive unless
// they are held. The sum of the counters must hold after it.
func (s *served) step(f func(c *pipeline.Ctx)) {
	s.t.Helper()
	var out packetio.Batch
	s.sw.Step(s.now, &out, f)
	for _, n := range s.sw.Notes() {
		s.notes = append(s.notes, n.Text)
	}
	for _, x := range out.Frames {
		var p wire.Frame
		if wire.ParseFrame(x.Data, &p) != nil || p.BTH.DestQP < firstQPN || p.BTH.DestQP >= firstOwn {
			x.Data = bytes.Clone(x.Data)
			s.left = append(s.left, x)
		} else if x.Port == portOfMem {
			s.execute(&p)
		}
	}
	st := s.m.Stats()
	if sum := st.Cached + st.Hits + st.Misses + uint64(s.m.InFlight()) + st.Torn + st.Unfit + st.Lost + st.Full + st.Blocked + st.Long; sum != st.Frames {
		s.t.Fatalf("%d frames, and the counters say where %d are: %+v", st.Frames, sum, st)
	}
	if s.inside {
		return
	}
	for s.inside = true; len(s.answers) > 0 && !s.held; {
		s.deliver(1)
	}
	s.inside = false
}

// deliver lets n answers arrive.
func (s *served) deliver(n int) {
	s.t.Helper()
	was := s.inside
	s.inside = true
	for range min(n, len(s.answers)) {
		a := s.answers[0]
		s.answers = s.answers[1:]
		s.step(func(c *pipeline.Ctx) { s.m.Owned(c, &pipeline.Parsed{Frame: a}) })
	}
	s.inside = was
}

// execute executes a request as the NIC of a server does.
func (s *served) execute(p *wire.Frame) {
	s.t.Helper()
	k := s.servers[netip.AddrFrom4(p.IPv4.Dst)]
	if k == nil || p.BTH.DestQP != k.qpn {
		return // of a connection that has ended
	}
	k.requests = append(k.requests, *p)
	if k.deaf {
		return
	}
	at := p.RETH.VA - regionAddr
	if p.BTH.PSN != k.psn || p.RETH.RKey != regionKey || at+uint64(p.RETH.Length) > uint64(len(k.memory)) {
		s.t.Fatalf("a server gets %v, want PSN %v", p, k.psn)
	}
	k.psn, k.msn = k.psn.Next(), k.msn+1
	var a wire.Frame
	a.IPv4 = wire.IPv4{Src: p.IPv4.Dst, Dst: p.IPv4.Src, TTL: 64}
	a.BTH = wire.BTH{Opcode: wire.RCAck, PKey: wire.DefaultPKey, DestQP: k.own, PSN: p.BTH.PSN}
	a.AETH = wire.AETH{Syndrome: wire.AckNoCredits, MSN: k.msn}
	switch p.BTH.Opcode {
	case wire.RCWriteOnly:
		copy(k.memory[at:], p.Payload)
	case wire.RCReadRequest:
		a.BTH.Opcode = wire.RCReadResponseOnly
		a.Payload = bytes.Clone(k.memory[at:][:p.RETH.Length])
	default:
		s.t.Fatalf("a server gets %v", p)
	}
	s.answers = append(s.answers, a)
}

// server returns the server at a place of the table.
func (s *served) server(i int) *memoryServer {
	return s.servers[s.m.tables[0].links[i].Key().Server]
}

// send offers packets of cn0 to the machine, in one step.
func (s *served) send(list ...[]byte) {
	s.t.Helper()
	s.step(func(c *pipeline.Ctx) {
		for _, b := range list {
			if !s.m.Take(c, portOfFrom, packetio.Frame{Data: bytes.Clone(b)}) {
				s.t.Error("a packet is not taken")
			}
		}
	})
}

// add adds entries, or removes them.
func (s *served) add(remove bool, list ...string) handler.EntriesReport {
	s.t.Helper()
	var out handler.EntriesReport
	var err error
	s.step(func(c *pipeline.Ctx) {
		out, err = s.m.Change(c, handler.Entries{Rule: "r", Remove: remove, Entries: list}, netip.ParseAddr)
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// entries lists all entries as the operator reads them, in as many pages as it takes.
func (s *served) entries() (list []string) {
	s.t.Helper()
	server, from := 0, 0
	for range 1000 {
		var p handler.EntriesPage
		var err error
		s.step(func(c *pipeline.Ctx) { p, err = s.m.Page(c, "r", server, from) })
		if err != nil {
			s.t.Fatal(err)
		}
		if !p.Ready {
			continue
		}
		list = append(list, p.Entries...)
		if server, from = p.Server, p.From; p.End {
			return list
		}
	}
	s.t.Fatal("the list of entries has no end")
	return nil
}

// run lets d pass.
func (s *served) run(d time.Duration) {
	s.t.Helper()
	end := s.now.Add(d)
	for range 10_000 {
		at := s.m.Deadline()
		if at > end {
			s.now = end
			return
		}
		s.now = max(s.now, at)
		s.step(s.m.Tick)
	}
	s.t.Fatal("a deadline is always in the past")
}

// ping makes a UDP packet of cn0 to a port with n bytes that all are id.
func ping(port uint16, id byte, n int) []byte {
	eth := wire.Ethernet{Dst: wire.MAC{2, 1}, Src: wire.MAC{2, 2}, Type: wire.EtherTypeIPv4}
	b := eth.AppendTo(nil)
	ip := make([]byte, ip4Len)
	ip[0], ip[8], ip[9] = 0x45, 64, protoUDP
	length := ip4Len + udpLen + n
	ip[2], ip[3] = byte(length>>8), byte(length)
	copy(ip[12:], []byte{10, 0, 0, 1})
	copy(ip[16:], []byte{10, 0, 0, 2})
	sum := ^fold(sumOf(ip))
	ip[10], ip[11] = byte(sum>>8), byte(sum)
	udp := make([]byte, udpLen)
	udp[1], udp[2], udp[3], udp[4], udp[5] = 7, byte(port>>8), byte(port), byte((udpLen+n)>>8), byte(udpLen+n)
	return append(append(append(b, ip...), udp...), bytes.Repeat([]byte{id}, n)...)
}

// pinged is the text of the flow of pings to a port.
func pinged(port string) string { return "from=10.0.0.1:7 to=10.0.0.2:" + port + " proto=udp" }

// count returns how many requests of a kind a server got.
func (k *memoryServer) count(op wire.Opcode) (n int) {
	for i := range k.requests {
		if k.requests[i].BTH.Opcode == op {
			n++
		}
	}
	return n
}

// ids returns the last bytes of the frames that have left by a port, in order.
func (s *served) ids(port int) (list []byte) {
	for _, f := range s.left {
		if f.Port == port {
			list = append(list, f.Data[len(f.Data)-1])
		}
	}
	return list
}

// An entry that the control plane adds is in the server's memory, at the table's place and nowhere else.
// A packet of its flow bounces through a cell behind the slots and leaves as the entry says. A capture
// says what each request is for.
func TestPacketsBounceThroughTheServer(t *testing.T) {
	s := newServed(t, "table=ms0 capacity=16 cells=4 cell=512 base=0x1000 cache=0 depth=2")
	s.attach()
	if out := s.add(false, pinged("80")+" dscp=46 egress=port0"); out.Taken != 1 || out.Written != 0 || out.Waiting != 1 {
		t.Errorf("%+v", out)
	}
	if out := s.add(false); out.Written != 1 || out.Waiting != 0 {
		t.Errorf("after the server's answer: %+v", out)
	}
	s.send(ping(80, 1, 100))
	s.send(ping(81, 2, 100)) // no entry: on to where it was going
	if a, b := s.ids(0), s.ids(2); !bytes.Equal(a, []byte{1, 2}) || !bytes.Equal(b, []byte{2}) {
		t.Errorf("port 0 gets %v, port 2 %v", a, b)
	}
	if tos := s.left[0].Data[15]; tos != 46<<2 {
		t.Errorf("the DSCP byte is %#x", tos)
	}
	if st := s.m.Stats(); st.Frames != 2 || st.Hits != 1 || st.Misses != 1 {
		t.Errorf("%+v", st)
	}
	k := s.server(0)
	slots, cells := 16+Probe-1, 0x1000+(16+Probe-1)*SlotLen
	end := cells + 4*512
	empty := make([]byte, len(k.memory))
	switch {
	case !bytes.Equal(k.memory[:0x1000], empty[:0x1000]) || !bytes.Equal(k.memory[end:], empty[end:]):
		t.Error("memory outside of the table has changed")
	case bytes.Equal(k.memory[0x1000:cells], empty[:slots*SlotLen]):
		t.Error("the entry is not in its slots")
	case !bytes.Contains(k.memory[cells:][:512], bytes.Repeat([]byte{1}, 100)) || !bytes.Contains(k.memory[cells+512:][:512], bytes.Repeat([]byte{2}, 100)):
		t.Error("the packets are not in the first two cells")
	}
	writes, reads := k.count(wire.RCWriteOnly), k.count(wire.RCReadRequest)
	if writes != 3 || reads != 5 { // the entry's slots, then cell, slots and cell of each packet
		t.Errorf("%d WRITEs and %d READs", writes, reads)
	}
	notes := strings.Join(s.notes, "\n")
	for why, n := range map[string]int{"store": 2, "load": 2, "entry": 2, "slots": 1, "change": 1} {
		if got := strings.Count(notes, "lookup: "+why); got != n {
			t.Errorf("%d requests are noted as %q, want %d\n%s", got, why, n, notes)
		}
	}
	if !strings.Contains(notes, "looked up: dscp=46 egress=port0, by an entry in a server's memory") || !strings.Contains(notes, "looked up: no entry") {
		t.Errorf("notes\n%s", notes)
	}
}

// Packets of one flow and of others leave in the order in which they came, each with its own bytes and its
// own entry, though more of them wait than READs may be in flight.
func TestPacketsKeepTheirOrder(t *testing.T) {
	s := newServed(t, "table=ms0 capacity=64 cells=32 cell=512 cache=0 depth=3")
	s.attach()
	s.add(false, pinged("80")+" egress=port0", pinged("81")+" drop", pinged("82")+" egress=port2")
	s.held = true
	var want []byte
	for i := range 10 {
		s.send(ping(80, byte(3*i), 50+i), ping(81, byte(3*i+1), 50), ping(82, byte(3*i+2), 400))
		want = append(want, byte(3*i))
	}
	if n := s.m.InFlight(); n != 30 || len(s.left) != 0 {
		t.Fatalf("%d in flight, %d have left", n, len(s.left))
	}
	if n := s.server(0).count(wire.RCReadRequest); n > 3+4 { // three spans of changes before
		t.Errorf("%d READs are in flight with depth 3", n-3)
	}
	s.held = false
	s.step(func(*pipeline.Ctx) {})
	if got := s.ids(0); !bytes.Equal(got, want) {
		t.Errorf("flow 80 leaves as %v", got)
	}
	for i, f := range s.left {
		if id := f.Data[len(f.Data)-1]; i%2 == 1 && (id%3 != 2 || f.Port != 2) || !bytes.Equal(f.Data[42:], bytes.Repeat([]byte{id}, len(f.Data)-42)) {
			t.Errorf("frame %d leaves by port %d with %x", i, f.Port, f.Data[42:])
		}
	}
	if st := s.m.Stats(); st.Hits != 30 || st.Denied != 10 || s.m.InFlight() != 0 {
		t.Errorf("%+v, %d in flight", st, s.m.InFlight())
	}
}

// A packet that needs several cells comes back whole, and does not if it is longer than all cells.
func TestLongPackets(t *testing.T) {
	s := newServed(t, "table=ms0 capacity=16 cells=3 cell=512 cache=0")
	s.attach()
	s.add(false, pinged("80")+" egress=port0")
	s.send(ping(80, 1, 1300))
	if len(s.left) != 1 || len(s.left[0].Data) != 1342 || !bytes.Equal(s.left[0].Data[42:], bytes.Repeat([]byte{1}, 1300)) {
		t.Fatalf("%d frames have left", len(s.left))
	}
	s.send(ping(80, 2, 1600))
	if st := s.m.Stats(); st.Long != 1 || st.Hits != 1 || s.m.InFlight() != 0 {
		t.Errorf("%+v", st)
	}
}

// As many packets are in flight as there are cells; a further one is dropped, and when one has come back,
// its cell is free.
func TestAllCellsInUse(t *testing.T) {
	s := newServed(t, "table=ms0 capacity=16 cells=2 cell=512 cache=0")
	s.attach()
	s.add(false, pinged("80")+" egress=port0")
	s.held = true
	s.send(ping(80, 1, 9), ping(80, 2, 9), ping(80, 3, 9))
	if st := s.m.Stats(); st.Full != 1 || s.m.InFlight() != 2 || s.m.tables[0].links[0].srv.Cells() != 2 {
		t.Errorf("%+v, %d in flight", st, s.m.InFlight())
	}
	s.held = false
	s.send(ping(80, 4, 9)) // the cells become free behind it
	s.send(ping(80, 5, 9))
	if got := s.ids(0); !bytes.Equal(got, []byte{1, 2, 5}) {
		t.Errorf("%v leave", got)
	}
	if st := s.m.Stats(); st.Full != 2 || s.m.InFlight() != 0 || s.m.tables[0].links[0].srv.Cells() != 0 {
		t.Errorf("%+v, %d in flight", st, s.m.InFlight())
	}
	s.step(func(c *pipeline.Ctx) {
		b, k := ping(80, 8, 9), Key{}
		for i := range 4 {
			s.m.tables[0].stats.Frames++
			if s.held = true; s.m.tables[0].links[0].srv.Bounce(c, portOfFrom, packetio.Frame{Data: b}, &k, 1) != (i < 2) {
				t.Errorf("packet %d is stored: %v", i, i >= 2)
			}
		}
	})
	s.held = false
	s.step(func(*pipeline.Ctx) {})
	s.m.tables[0].stats.Full -= 2
	s.m.tables[0].stats.Frames -= 2
	s.held = true
	s.send(ping(80, 6, 600)) // both cells
	s.send(ping(80, 7, 9))
	if st := s.m.Stats(); st.Full != 3 || s.m.InFlight() != 1 {
		t.Errorf("%+v, %d in flight", st, s.m.InFlight())
	}
}

// Without a connection packets are dropped, and changes wait for the next one.
func TestNoConnection(t *testing.T) {
	s := newServed(t, "table=ms0 capacity=16 cells=4 cell=512 cache=0")
	s.send(ping(80, 1, 9))
	if st := s.m.Stats(); st.Blocked != 1 || s.m.InFlight() != 0 {
		t.Errorf("%+v", st)
	}
	if out := s.add(false, pinged("80")+" egress=port0"); out.Waiting != 1 || out.Written != 0 || !strings.HasPrefix(out.Down, "10.0.0.3") {
		t.Errorf("%+v", out)
	}
	s.attach()
	if out := s.add(false); out.Waiting != 0 || out.Written != 1 || out.Down != "" {
		t.Errorf("%+v", out)
	}
	l := s.m.Links.All[0]
	s.step(func(c *pipeline.Ctx) { s.m.Detach(c, l.Key(), l.Generation()) })
	s.send(ping(80, 2, 9))
	if st := s.m.Stats(); st.Blocked != 2 || l.srv.Up() {
		t.Errorf("%+v", st)
	}
}
