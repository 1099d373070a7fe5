package apps

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cm"
	"github.com/rdmalab/rdmalab/softrnic/memgrant"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/journal"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

var (
	hostileSeeds = flag.Int("hostile-seeds", 10, "how many seeds of TestHostileHosts")
	hostileFirst = flag.Int("hostile-first", 1, "first seed of TestHostileHosts")
)

const hostileFile = `
name: hostile
switch: {program: swordbox}
hosts:
  - {name: ms0, role: memory}
  - {name: ms1, role: memory}
  - {name: cn0, role: compute}
  - {name: cn1, role: compute}
`

// hostile is a switch of which all hosts are hostile. The memory servers accept the switch's
// connections, and answer most of its requests.
type hostile struct {
	*rand.Rand
	t     *testing.T
	spec  *rackfile.Rack
	mem   []byte
	sw    *pipeline.Switch
	p     *swordbox.Program // nil: the switch runs program forward
	plain *swordbox.Program // p, until it gets a rule that holds or keeps packets
	now   clock.Time
	out   packetio.Batch
	qps   []wire.QPN   // queue pairs that packets name
	own   []wire.Frame // what the switch has sent to servers on its connections
	psn   wire.PSN
	conns int
	last  wire.QPN
	words map[uint64]uint64
	peers map[wire.QPN]wire.QPN
}

// hostileRules are the rules that an operator adds and removes.
var hostileRules = []string{
	"server=ms0 action=atomics shards=2 misses=wait:1ms", "server=ms0 action=atomics mode=published", "server=ms0 action=move depth=1", "server=ms0 action=move mode=published",
	"server=ms1 action=steer keys=hot:4", "server=ms1 action=steer mode=published registers=2", "server=ms1 action=steer steer=read",
	"server=ms0 action=count top=3", "server=ms1 action=count store=ms0 at=0x200000 slots=8 per=address", "server=ms1 action=count store=ms0 at=0x200000 mode=published",
	"server=cn0 action=buffer ring=ms0,ms1 rate=10Mbit high=2 low=1 entries=8 entry=512 offset=0x10000", "server=cn0 action=buffer ring=ms0 rate=100Mbit high=3 entries=4 entry=1024 mode=published offset=0x10000",
	"server=cn1 action=lookup table=ms0,ms1 capacity=64 cells=4 cell=512 base=0x100000", "server=cn1 action=lookup table=ms1 capacity=64 cells=4 mode=published base=0x100000",
	"server=cn1 action=lookup table=ms0 capacity=64 cells=4 match=destination miss=drop base=0x100000",
	"server=ms0 action=track", "server=cn0 action=buffer ring=ms1 rate=1Gbit high=1 low=1 entries=2 entry=2048 offset=0x20000",
	"server=ms0 action=atomics range=0x10000-0x10040", "server=ms0 action=move range=0x20000-0x30000 service=memory",
}

func newHostile(t *testing.T, seed uint64) *hostile {
	s, err := rackfile.Parse([]byte(hostileFile))
	if err != nil {
		t.Fatal(err)
	}
	h := &hostile{Rand: rand.New(rand.NewPCG(seed, 7)), t: t, spec: s, mem: make([]byte, journal.Size), last: 0x100, words: map[uint64]uint64{}, peers: map[wire.QPN]wire.QPN{}}
	p := h.program()
	if h.sw, err = pipeline.New(pipeline.Config{Ports: len(s.Hosts), Program: p, Self: Self(s), MaxHeld: 64}); err != nil {
		t.Fatal(err)
	}
	for q := range wire.QPN(4) {
		h.qps = append(h.qps, 0x40+q)
	}
	for i := range s.Hosts { // the switch learns the ports
		h.send(i, packetio.Frame{Data: slices.Concat(s.Hosts[(i+1)%4].MAC[:], s.Hosts[i].MAC[:], []byte{0x88, 0xb5}, make([]byte, 46))})
	}
	return h
}

// program makes a program with the journal of the former one.
func (h *hostile) program() *swordbox.Program {
	rec, err := journal.Open(h.mem)
	if err != nil {
		h.t.Fatal(err)
	}
	p, err := New(h.spec, Config{Rand: rand.New(rand.NewPCG(h.Uint64(), 1)), Journal: rec, Late: h.IntN(2) == 0, Nodes: 64, Connections: 16})
	if err != nil {
		h.t.Fatal(err)
	}
	h.p = p.(*swordbox.Program)
	h.plain = h.p
	return h.p
}

// send passes a frame to the switch, and its answers to the hosts.
func (h *hostile) send(in int, f packetio.Frame) {
	h.out.Reset()
	before := h.passed()
	h.sw.Frame(h.now, in, f, &h.out)
	after := h.passed()
	if n := uint64(f.Packets()); h.transparent() && before.flooded == after.flooded && n+before.out+after.made != after.out+before.made {
		h.t.Fatalf("%d packets came in at port %d, %d were made, and %d left or are counted: %x, segments of %d", n, in, after.made-before.made, after.out-before.out, f.Data, f.SegSize)
	}
	h.deliver()
}

// passed has the number of packets that the switch has made, and that have left, were dropped or
// consumed.
type passed struct{ made, out, flooded uint64 }

func (h *hostile) passed() (x passed) {
	c, lost := h.sw.Counters()
	x.made, x.flooded, x.out = c.Emitted+c.GroupQueries, c.Flooded+c.Multicast+c.GroupReports, c.Consumed
	for _, n := range lost {
		x.out += n
	}
	for i := range h.spec.Hosts {
		p := h.sw.Port(i)
		x.out += p.TxPackets
		for _, n := range p.Drops {
			x.out += n
		}
	}
	return x
}

// transparent reports whether the program has had no rule that holds or keeps packets.
func (h *hostile) transparent() bool {
	if h.p != nil && h.p != h.plain {
		return false
	}
	ok := h.p == nil || !slices.ContainsFunc(h.p.Rules().All(), func(r rules.Rule) bool { return r.Queues() || r.Moves() || r.Action == rules.Steer })
	if !ok {
		h.plain = nil
	}
	return ok
}

// deliver takes what the switch sends. The servers answer.
func (h *hostile) deliver() {
	for _, x := range h.out.Frames {
		var f wire.Frame
		if x.Port > 1 || wire.ParseFrame(slices.Clone(x.Data), &f) != nil || f.Eth.Src != h.spec.Switch.MAC {
			continue
		}
		if len(h.own) < 64 {
			h.own = append(h.own, f)
		}
	}
}

// serve answers the oldest frame that the switch has sent to a server.
func (h *hostile) serve() {
	if len(h.own) == 0 {
		return
	}
	f := h.own[0]
	h.own = h.own[1:]
	if h.IntN(20) == 0 { // lost
		return
	}
	in := slices.IndexFunc(h.spec.Hosts, func(s rackfile.Host) bool { return s.IPv4 == f.DstAddr() || s.IPv6 == f.DstAddr() })
	if in < 0 {
		return
	}
	a := wire.Frame{Eth: wire.Ethernet{Src: f.Eth.Dst, Dst: f.Eth.Src}, V6: f.V6}
	a.IPv4 = wire.IPv4{TTL: 64, Src: f.IPv4.Dst, Dst: f.IPv4.Src}
	a.IPv6 = wire.IPv6{HopLimit: 64, Src: f.IPv6.Dst, Dst: f.IPv6.Src}
	a.BTH = wire.BTH{PKey: wire.DefaultPKey, PSN: f.BTH.PSN}
	if f.BTH.Opcode == wire.UDSendOnly {
		var head mad.Header
		m, err := mad.Parse(f.Payload, &head)
		if err != nil {
			return
		}
		a.BTH.Opcode, a.BTH.DestQP = wire.UDSendOnly, 1
		a.DETH = wire.DETH{QKey: 0x80010000, SrcQP: 1}
		switch q := m.(type) {
		case *mad.REQ:
			h.last++
			h.peers[h.last] = q.QPN
			h.qps = append(h.qps, q.QPN)
			rep := &mad.REP{LocalID: mad.CommID(h.last), RemoteID: q.LocalID, QPN: h.last, PSN: 5, ResponderResources: 4, InitiatorDepth: 4}
			g := memgrant.Grant{Conn: 1, Boot: uint64(h.IntN(2)), Region: memgrant.Region{Addr: 0x10000, RKey: 7, Len: 64 << 20}}
			if h.IntN(10) == 0 {
				g.Region.Len = h.IntN(1 << 17)
			}
			if rep.Private, err = cm.ServiceOf("memory").Reply(g.AppendTo([]byte{memgrant.Version, memgrant.Kind}), cm.MTUOf(q.MTU)); err != nil {
				h.t.Fatal(err)
			}
			a.Payload = mad.Append(nil, head.TID, rep)
		case *mad.DREQ:
			a.Payload = mad.Append(nil, head.TID, &mad.DREP{LocalID: q.RemoteID, RemoteID: q.LocalID})
		default:
			return
		}
	} else {
		to, ok := h.peers[f.BTH.DestQP]
		if !ok {
			return
		}
		a.BTH.DestQP = to
		a.AETH = wire.AETH{Syndrome: wire.AckNoCredits, MSN: uint32(f.BTH.PSN) & 0xffffff}
		if h.IntN(60) == 0 {
			a.AETH.Syndrome = []wire.Syndrome{wire.NakPSNSequence, wire.NakRemoteAccess, wire.NakRemoteOp, wire.RNRNak | 1}[h.IntN(4)]
			f.BTH.Opcode = wire.RCSendOnly
		}
		va := f.RETH.VA &^ 7
		switch f.BTH.Opcode {
		case wire.RCReadRequest:
			a.BTH.Opcode = wire.RCReadResponseOnly
			a.Payload = make([]byte, min(4096, f.RETH.Length))
			for i := 0; i+8 <= len(a.Payload); i += 8 {
				binary.BigEndian.PutUint64(a.Payload[i:], h.words[va+uint64(i)])
			}
		case wire.RCWriteOnly:
			for i := 0; i+8 <= len(f.Payload); i += 8 {
				h.words[va+uint64(i)] = binary.BigEndian.Uint64(f.Payload[i:])
			}
			a.BTH.Opcode = wire.RCAck
		case wire.RCCmpSwap, wire.RCFetchAdd:
			a.BTH.Opcode = wire.RCAtomicAck
			a.AtomicAck = h.words[f.AtomicETH.VA]
			if f.BTH.Opcode == wire.RCFetchAdd {
				h.words[f.AtomicETH.VA] += f.AtomicETH.SwapOrAdd
			} else if h.words[f.AtomicETH.VA] == f.AtomicETH.Compare {
				h.words[f.AtomicETH.VA] = f.AtomicETH.SwapOrAdd
			}
		default:
			a.BTH.Opcode = wire.RCAck
		}
	}
	if h.IntN(10) == 0 {
		h.change(&a)
	}
	h.frame(in, &a)
}

// frame sends a packet, perhaps damaged, cut, or as a super-frame.
func (h *hostile) frame(in int, f *wire.Frame) {
	b := f.AppendTo(nil)
	x := packetio.Frame{Data: b}
	switch h.IntN(30) {
	case 0:
		b[h.IntN(len(b))] ^= 1 << h.IntN(8)
	case 1:
		x.Data = b[:h.IntN(len(b)+1)]
	case 2:
		x.Data = append(b, make([]byte, h.IntN(50))...)
	case 3, 4:
		x = h.super(f)
	}
	h.send(in, x)
}

// super makes a super-frame of packets like f.
func (h *hostile) super(f *wire.Frame) packetio.Frame {
	b := f.AppendTo(nil)
	head := 14 + 20 + 8
	if f.V6 {
		head += 20
	}
	size := len(b) - head
	for i := range h.IntN(6) {
		g := *f
		g.BTH.PSN = f.BTH.PSN.Add(i + 1)
		g.IPv4.ID += uint16(i + 1)
		if h.IntN(8) == 0 {
			h.change(&g)
		}
		d := g.AppendTo(nil)
		if len(d) > head {
			b = append(b, d[head:min(len(d), head+size)]...)
		}
	}
	if h.IntN(3) == 0 { // a truncated last segment
		b = b[:len(b)-h.IntN(min(size, len(b)-head))]
	}
	if h.IntN(6) == 0 { // an odd segment size
		size = 1 + h.IntN(2*size)
	}
	if !f.V6 {
		binary.BigEndian.PutUint16(b[16:], uint16(len(b)-14))
		binary.BigEndian.PutUint16(b[38:], uint16(len(b)-34))
		binary.BigEndian.PutUint16(b[24:], 0)
		sum := uint32(0)
		for i := 14; i < 34; i += 2 {
			sum += uint32(binary.BigEndian.Uint16(b[i:]))
		}
		for sum > 0xffff {
			sum = sum>>16 + sum&0xffff
		}
		binary.BigEndian.PutUint16(b[24:], ^uint16(sum))
	} else {
		binary.BigEndian.PutUint16(b[18:], uint16(len(b)-54))
		binary.BigEndian.PutUint16(b[58:], uint16(len(b)-54))
	}
	return packetio.Frame{Data: b, SegSize: size, CsumPartial: true, CsumStart: uint16(head - 8), CsumOffset: 6}
}

// change changes one field of a packet.
func (h *hostile) change(f *wire.Frame) {
	hosts := h.spec.Hosts
	switch h.IntN(16) {
	case 0:
		f.BTH.Opcode = wire.Opcode(h.IntN(256))
	case 1:
		f.BTH.PSN = f.BTH.PSN.Add(h.IntN(1<<h.IntN(24)) - h.IntN(200))
	case 2:
		f.BTH.DestQP = h.qps[h.IntN(len(h.qps))]
	case 3:
		f.BTH.DestQP = wire.QPN(h.IntN(1 << 24))
	case 4:
		f.RETH.Length = uint32(h.Uint64()) >> h.IntN(32)
	case 5:
		f.RETH.VA = ^uint64(0) >> h.IntN(64)
		f.AtomicETH.VA = f.RETH.VA
	case 6:
		f.AETH.Syndrome = wire.Syndrome(h.IntN(256))
	case 7:
		f.AETH.MSN = uint32(h.IntN(1 << 24))
	case 8:
		f.Payload = make([]byte, h.IntN(1<<h.IntN(13)))
	case 9:
		f.IPv4.Src = hosts[h.IntN(4)].IPv4.As4()
	case 10:
		f.Eth.Dst = hosts[h.IntN(4)].MAC
	case 11:
		f.Eth.Dst, f.IPv4.Dst = h.spec.Switch.MAC, h.spec.Switch.IPv4.As4()
	case 12:
		f.Eth.Tagged, f.Eth.TCI = true, uint16(h.IntN(1<<16))
	case 13:
		f.DETH = wire.DETH{QKey: uint32(h.Uint64()), SrcQP: wire.QPN(h.IntN(4))}
	case 14:
		if len(f.Payload) > 0 {
			f.Payload = slices.Clone(f.Payload)
			f.Payload[h.IntN(len(f.Payload))] ^= 1 << h.IntN(8)
		}
	case 15:
		f.V6 = true
		f.IPv6 = wire.IPv6{HopLimit: 64, Src: hosts[h.IntN(4)].IPv6.As16(), Dst: hosts[h.IntN(4)].IPv6.As16()}
	}
}

// hostileOps are the operations of clients.
var hostileOps = []wire.Opcode{
	wire.RCSendOnly, wire.RCSendFirst, wire.RCSendMiddle, wire.RCSendLast, wire.RCWriteOnly, wire.RCWriteFirst, wire.RCWriteMiddle, wire.RCWriteLast,
	wire.RCWriteOnlyImm, wire.RCReadRequest, wire.RCReadRequest, wire.RCCmpSwap, wire.RCCmpSwap, wire.RCFetchAdd, wire.RCAtomicWrite, wire.RCFlush, wire.CNP, wire.UCWriteOnly,
	wire.UDSendOnly,
}

// client sends a request of a client, or a server's response to one.
func (h *hostile) client() {
	c, s := 2+h.IntN(2), h.IntN(2)
	q := wire.QPN(h.IntN(2))
	hosts := h.spec.Hosts
	f := wire.Frame{Eth: wire.Ethernet{Src: hosts[c].MAC, Dst: hosts[s].MAC}}
	f.IPv4 = wire.IPv4{TTL: 64, Src: hosts[c].IPv4.As4(), Dst: hosts[s].IPv4.As4(), ID: uint16(h.psn)}
	f.BTH = wire.BTH{Opcode: hostileOps[h.IntN(len(hostileOps))], PKey: wire.DefaultPKey, DestQP: 0x40 + q, PSN: h.psn, AckReq: h.IntN(2) == 0}
	f.RETH = wire.RETH{VA: 0x10000 + uint64(h.IntN(16))*8, RKey: 7, Length: uint32(8 * (1 + h.IntN(4)))}
	f.AtomicETH = wire.AtomicETH{VA: f.RETH.VA, RKey: 7, SwapOrAdd: uint64(h.IntN(3)), Compare: uint64(h.IntN(3))}
	if f.BTH.Opcode.Has(wire.HasRETH) && f.BTH.Opcode != wire.RCReadRequest || f.BTH.Opcode.Has(0) {
		f.Payload = make([]byte, f.RETH.Length)
	}
	if f.BTH.Opcode == wire.RCWriteFirst || f.BTH.Opcode == wire.RCWriteMiddle {
		f.RETH.Length = 3000
		f.Payload = make([]byte, 1024)
	}
	in := c
	if h.IntN(2) == 0 {
		in = s
		f.Eth.Src, f.Eth.Dst, f.IPv4.Src, f.IPv4.Dst = f.Eth.Dst, f.Eth.Src, f.IPv4.Dst, f.IPv4.Src
		f.BTH.DestQP = 0x42 + q
		f.BTH.Opcode = []wire.Opcode{wire.RCAck, wire.RCAck, wire.RCAtomicAck, wire.RCReadResponseOnly, wire.RCReadResponseFirst, wire.RCReadResponseLast}[h.IntN(6)]
		f.AETH = wire.AETH{Syndrome: wire.AckNoCredits}
		f.Payload = nil
		if f.BTH.Opcode.Is(wire.OpResponse) && f.BTH.Opcode >= wire.RCReadResponseFirst && f.BTH.Opcode <= wire.RCReadResponseOnly {
			f.Payload = make([]byte, 8*(1+h.IntN(4)))
		}
	} else if h.IntN(3) > 0 {
		h.psn = h.psn.Next()
	}
	if h.IntN(4) == 0 {
		h.change(&f)
	}
	h.frame(in, &f)
}

// announce makes a connection of a client and a server by the connection manager.
func (h *hostile) announce() {
	c, s, q := 2+h.IntN(2), h.IntN(2), wire.QPN(h.IntN(2))
	hosts := h.spec.Hosts
	h.conns++
	req := &mad.REQ{
		LocalID: mad.CommID(2 * h.conns), QPN: 0x42 + q, PSN: h.psn, MTU: 3, ResponderResources: 4, InitiatorDepth: 4,
		Primary: mad.Path{LocalGID: hosts[c].IPv4.As16(), RemoteGID: hosts[s].IPv4.As16()},
	}
	rep := &mad.REP{LocalID: mad.CommID(2*h.conns + 1), RemoteID: req.LocalID, QPN: 0x40 + q, PSN: h.psn, ResponderResources: 4, InitiatorDepth: 4}
	rtu := &mad.RTU{LocalID: req.LocalID, RemoteID: rep.LocalID}
	for i, m := range []mad.Message{req, rep, rtu} {
		from, to := c, s
		if i == 1 {
			from, to = s, c
		}
		f := wire.Frame{Eth: wire.Ethernet{Src: hosts[from].MAC, Dst: hosts[to].MAC}}
		f.IPv4 = wire.IPv4{TTL: 64, Src: hosts[from].IPv4.As4(), Dst: hosts[to].IPv4.As4()}
		f.BTH = wire.BTH{Opcode: wire.UDSendOnly, PKey: wire.DefaultPKey, DestQP: 1}
		f.DETH = wire.DETH{QKey: 0x80010000, SrcQP: 1}
		f.Payload = mad.Append(nil, uint64(h.conns), m)
		h.send(from, packetio.Frame{Data: f.AppendTo(nil)})
	}
}

// other sends a frame that is no RoCEv2 packet to a host with a queue or a table.
func (h *hostile) other() {
	hosts := h.spec.Hosts
	a, b := h.IntN(4), h.IntN(4)
	d := slices.Concat(hosts[b].MAC[:], hosts[a].MAC[:], []byte{8, 0})
	ip := make([]byte, 20+h.IntN(1500))
	ip[0], ip[8], ip[9] = 0x45, 64, []byte{6, 17, 1, 58}[h.IntN(4)]
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	src, dst := hosts[a].IPv4.As4(), hosts[b].IPv4.As4()
	copy(ip[12:], src[:])
	copy(ip[16:], dst[:])
	for i := 20; i < len(ip) && i < 64; i++ {
		ip[i] = byte(h.IntN(256))
	}
	if h.IntN(6) == 0 {
		ip[h.IntN(20)] ^= 1 << h.IntN(8)
	}
	h.send(a, packetio.Frame{Data: append(d, ip[:len(ip)-h.IntN(1+min(8, len(ip)-1))*h.IntN(2)]...)})
}

func (h *hostile) address(name string) (netip.Addr, error) {
	if l := h.spec.Addresses(name); len(l) > 0 {
		return l[0], nil
	}
	return netip.ParseAddr(name)
}

// operator changes rules, tables, ports or the program.
func (h *hostile) operator() {
	defer h.transparent()
	if h.p == nil {
		h.load()
		return
	}
	set := h.p.Rules()
	switch h.IntN(12) {
	case 0, 1, 2, 3, 4:
		r, err := rules.Parse(hostileRules[h.IntN(len(hostileRules))])
		if err == nil {
			err = r.Resolve(h.spec.Addresses)
		}
		if err != nil {
			h.t.Fatal(err)
		}
		next, _, err := set.Add(r)
		if err != nil { // it contradicts another one: replace all
			if next, err = rules.NewSet([]rules.Rule{r}); err != nil {
				h.t.Fatal(err)
			}
		}
		if err := h.p.SetRules(next); err != nil {
			h.t.Fatal(err)
		}
	case 5, 6:
		if all := set.All(); len(all) > 0 {
			next, err := set.Remove(all[h.IntN(len(all))].ID)
			if err == nil {
				err = h.p.SetRules(next)
			}
			if err != nil {
				h.t.Fatal(err)
			}
		}
	case 7:
		tables := h.p.Tables(h.now)
		x := tables[h.IntN(len(tables))]
		if _, ok := h.p.ClearTable(x.Name); ok != x.Clear {
			h.t.Fatalf("table %+v: cleared %v", x, ok)
		}
	case 8:
		if h.IntN(4) == 0 {
			h.load()
		}
	case 9:
		port := h.IntN(4)
		h.sw.SetPort(port, h.IntN(3) > 0)
	case 10:
		for _, r := range set.All() {
			in := handler.Entries{Rule: r.ID, Remove: h.IntN(3) == 0, Entries: []string{"from=cn1:1 to=ms0:2 proto=udp dscp=3"}}
			if h.IntN(2) == 0 {
				in.Entries = []string{"to=ms0 egress=cn0"}
			}
			h.out.Reset()
			h.sw.Step(h.now, &h.out, func(c *pipeline.Ctx) {
				_, _ = h.p.ChangeEntries(c, in, h.address)
			})
			h.deliver()
		}
	case 11:
		h.p.Report(h.now)
		h.p.Counters(h.now)
		for _, x := range h.p.Tables(h.now) {
			if x.Used < 0 || x.Used > x.Max {
				h.t.Fatalf("table %+v", x)
			}
		}
	}
}

// sums says which counters of a part are the sum of which others.
var sums = map[string][2][]string{
	"buffer": {{"frames"}, {"sent", "waiting", "remote", "lost", "full", "blocked", "long", "down"}},
	"lookup": {{"frames"}, {"cached", "hits", "misses", "in_flight", "torn", "unfit", "lost", "full", "blocked", "long"}},
	"count":  {{"amount"}, {"applied", "pending", "in_flight", "uncertain", "dropped"}},
}

// account checks that the counters of the program add up.
func (h *hostile) account() {
	if h.p == nil {
		return
	}
	for _, g := range h.p.Counters(h.now) {
		sides, ok := sums[strings.TrimSuffix(g.Name, " published")]
		if !ok || g.Name == "count published" {
			continue
		}
		var sum [2]uint64
		for i := range sides {
			for _, c := range g.Counters {
				if slices.Contains(sides[i], c.Name) {
					sum[i] += c.Value
				}
			}
		}
		if sum[0] != sum[1] {
			h.t.Fatalf("%s: %d in, %d accounted for: %+v", g.Name, sum[0], sum[1], g.Counters)
		}
	}
}

// load replaces the program, as the daemon does.
func (h *hostile) load() {
	former := h.p
	var next pipeline.Program
	var self pipeline.Self
	if former != nil {
		if former.Bound() > 0 {
			return
		}
		h.out.Reset()
		h.sw.Step(h.now, &h.out, former.Close)
		h.deliver()
		var err error
		s := *h.spec
		s.Switch.Program = rackfile.ProgramForward
		if next, err = New(&s, Config{}); err != nil {
			h.t.Fatal(err)
		}
		h.p = nil
	} else {
		next, self = h.program(), Self(h.spec)
	}
	h.out.Reset()
	if err := h.sw.Load(h.now, next, self, &h.out); err != nil {
		h.t.Fatal(err)
	}
	h.deliver()
	if former != nil {
		former.Unloaded()
	}
}

// tick lets time pass.
func (h *hostile) tick(d time.Duration) {
	end := h.now.Add(d)
	for still := 0; ; still++ {
		at := h.sw.Deadline()
		if at > end {
			break
		}
		if at > h.now {
			h.now, still = at, 0
		}
		if still > 100 {
			h.t.Fatal("the switch does not come to an end of what it does at one time")
		}
		h.out.Reset()
		h.sw.Tick(h.now, &h.out)
		h.deliver()
	}
	h.now = end
}

// No packet makes the switch panic or go on without end, whatever rules and programs come and go while
// it passes, and the counters add up: those of the handlers, and those of the ports while no rule
// holds packets. The packets are valid but for one change, or belong to super-frames that are cut or
// have odd segments.
func TestHostileHosts(t *testing.T) {
	for seed := range uint64(*hostileSeeds) {
		t.Run(fmt.Sprint("seed=", seed+uint64(*hostileFirst)), func(t *testing.T) {
			h := newHostile(t, seed+uint64(*hostileFirst))
			for i := range 3000 {
				if i%50 == 0 {
					h.account()
				}
				switch n := h.IntN(100); {
				case n < 2:
					h.operator()
				case n < 4:
					h.announce()
				case n < 40:
					h.client()
				case n < 50:
					h.other()
				case n < 85:
					for range h.IntN(6) {
						h.serve()
					}
				default:
					h.tick(time.Duration(1) << h.IntN(18+10*h.IntN(2)*h.IntN(2)))
				}
			}
		})
	}
}
