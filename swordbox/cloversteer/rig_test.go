package cloversteer_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
	"github.com/rdmalab/rdmalab/swordbox/cloversteer"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// serverHost is the memory server; hosts 1 to 4 are clients. Host i is behind port i, its queue
// pair 0x10+i is connected with the server's 0x20+i, and its first PSN is 100*i.
const (
	serverHost = 0
	base       = 0x10000000
	rkey       = 5
)

// space has 16 nodes of 128 bytes on each of two servers; the first is this rig's server. The nodes
// begin at 64 + 4·8 + 4·16 = 160 bytes, rounded up to 256.
var space = layout.Space{Servers: 2, Entries: layout.Counts{0: 16}, Shortcuts: 4}

// va returns the address of a node, computed independently of package layout.
func va(h layout.Handle) uint64 { return base + 256 + uint64(h-1)*128 }

// box is a switch with the program, and the frames that it sent.
type box struct {
	t       testing.TB
	sw      *pipeline.Switch
	program *swordbox.Program
	rules   *rules.Set // the rules with which the box began
	m       *cloversteer.Machine
	now     clock.Time
	out     packetio.Batch
	sent    [5]int // requests of each client
}

func newBox(t testing.TB, r rules.Rule, others ...int) *box {
	return newBoxOf(t, conntrack.Config{Settle: -1}, r, others...)
}

func newBoxOf(t testing.TB, track conntrack.Config, r rules.Rule, others ...int) *box {
	var list []rules.Rule
	for _, i := range append([]int{serverHost}, others...) {
		r.Server, r.Action = addr(i), rules.Steer
		list = append(list, r)
	}
	set, err := rules.NewSet(list)
	if err != nil {
		t.Fatal(err)
	}
	b := &box{t: t, rules: set, now: clock.Time(time.Second), m: cloversteer.New(cloversteer.Config{Nodes: 64, Keys: 16, Waiting: 4})}
	b.program = swordbox.New(swordbox.Config{Rules: set, Handlers: []handler.Handler{b.m}, Track: track})
	b.sw, err = pipeline.New(pipeline.Config{Ports: 5, Program: b.program})
	if err != nil {
		t.Fatal(err)
	}
	b.send(frame(serverHost, 1, 0x11, wire.UDSendOnly, 0)) // so that the switch learns the server's port
	for i := 1; i <= 4; i++ {
		b.send(datagram(i, serverHost, &mad.REQ{
			LocalID: mad.CommID(i), QPN: wire.QPN(0x10 + i), PSN: 7, MTU: 3,
			Primary: mad.Path{LocalGID: addr(i).As16(), RemoteGID: addr(serverHost).As16()},
		}))
		b.send(datagram(serverHost, i, &mad.REP{LocalID: mad.CommID(0x80 + i), RemoteID: mad.CommID(i), QPN: wire.QPN(0x20 + i), PSN: wire.PSN(100 * i)}))
	}
	return b
}

// setRules replaces the rules of the switch.
func (b *box) setRules(set *rules.Set) {
	b.t.Helper()
	if err := b.program.SetRules(set); err != nil {
		b.t.Fatal(err)
	}
}

// format lets client 4 write the store's superblock.
func (b *box) format() {
	s := layout.Superblock{Format: layout.Hardened, Generation: 9, Space: space}
	data := make([]byte, layout.SuperblockLen)
	s.Put(data)
	b.pass(b.write(4, base, data))
}

func addr(i int) netip.Addr      { return netip.AddrFrom4([4]byte{10, 0, 0, byte(10 + i)}) }
func macOf(i int) wire.MAC       { return wire.MAC{2, 0, 0, 0, 0, byte(10 + i)} }
func senderOf(f *wire.Frame) int { return int(f.IPv4.Src[3]) - 10 }

func frame(from, to int, qpn wire.QPN, op wire.Opcode, psn wire.PSN) *wire.Frame {
	f := &wire.Frame{Eth: wire.Ethernet{Src: macOf(from), Dst: macOf(to)}}
	f.IPv4 = wire.IPv4{TTL: 64, DF: true, ID: 77, Src: addr(from).As4(), Dst: addr(to).As4()}
	f.UDP.SrcPort = uint16(0xc000 + from)
	f.BTH = wire.BTH{Opcode: op, PKey: wire.DefaultPKey, DestQP: qpn, PSN: psn}
	f.AETH.Syndrome = wire.AckNoCredits
	return f
}

func datagram(from, to int, m mad.Message) *wire.Frame {
	f := frame(from, to, 1, wire.UDSendOnly, 0)
	f.Payload = mad.Append(nil, 1, m)
	return f
}

// send passes a frame to the switch and returns the frames sent.
func (b *box) send(f *wire.Frame) []wire.Frame {
	b.t.Helper()
	b.now = b.now.Add(time.Microsecond)
	b.out.Reset()
	b.sw.Frame(b.now, senderOf(f), packetio.Frame{Data: f.AppendTo(nil)}, &b.out)
	return b.left()
}

// wait advances the time and returns the frames sent.
func (b *box) wait(d time.Duration) []wire.Frame {
	b.now = b.now.Add(d)
	b.out.Reset()
	b.sw.Tick(b.now, &b.out)
	return b.left()
}

func (b *box) left() (list []wire.Frame) {
	b.t.Helper()
	for _, o := range b.out.Frames {
		var g wire.Frame
		if err := wire.ParseFrame(o.Data, &g); err != nil || !wire.CheckICRC(o.Data) {
			b.t.Fatalf("%x: %v, ICRC %v", o.Data, err, wire.CheckICRC(o.Data))
		}
		list = append(list, g)
	}
	return list
}

// one is send for a frame for which the switch must send one packet.
func (b *box) one(f *wire.Frame) *wire.Frame {
	b.t.Helper()
	list := b.send(f)
	if len(list) != 1 {
		b.t.Fatalf("%v: %d packets left: %v", f, len(list), list)
	}
	return &list[0]
}

// pass is one for a frame that must be forwarded unchanged.
func (b *box) pass(f *wire.Frame) {
	b.t.Helper()
	if g := b.one(f); g.BTH != f.BTH || g.RETH != f.RETH || g.AtomicETH != f.AtomicETH || g.AtomicAck != f.AtomicAck {
		b.t.Fatalf("%v left as %v", f, g)
	}
}

func (b *box) request(i int, op wire.Opcode) *wire.Frame {
	f := frame(i, serverHost, wire.QPN(0x20+i), op, wire.PSN(100*i+b.sent[i]))
	b.sent[i]++
	return f
}

func (b *box) write(i int, va uint64, data []byte) *wire.Frame {
	f := b.request(i, wire.RCWriteOnly)
	f.RETH, f.Payload, f.BTH.AckReq = wire.RETH{VA: va, RKey: rkey, Length: uint32(len(data))}, data, true
	return f
}

// node sends the WRITE of a node by client i, which is forwarded unchanged.
func (b *box) node(i int, h layout.Handle, v layout.Version, key uint64) {
	b.t.Helper()
	data := make([]byte, 128)
	layout.Hardened.PutNode(data, layout.Header(v), key, []byte("x"))
	b.pass(b.write(i, va(h), data))
}

// cas returns the CAS that appends a node to another one.
func (b *box) cas(i int, to layout.Handle, toVersion layout.Version, n layout.Handle, v layout.Version) *wire.Frame {
	f := b.request(i, wire.RCCmpSwap)
	f.AtomicETH = wire.AtomicETH{
		VA: va(to), RKey: rkey, Compare: uint64(layout.Header(toVersion)),
		SwapOrAdd: uint64(layout.Superseded(toVersion, layout.Location{Handle: n, Version: v})),
	}
	return f
}

func (b *box) read(i int, h layout.Handle) *wire.Frame {
	f := b.request(i, wire.RCReadRequest)
	f.RETH = wire.RETH{VA: va(h), RKey: rkey, Length: 128}
	return f
}

// answer returns the server's response to a CAS, with the original header.
func answer(f *wire.Frame, was layout.Word) *wire.Frame {
	i := senderOf(f)
	a := frame(serverHost, i, wire.QPN(0x10+i), wire.RCAtomicAck, f.BTH.PSN)
	a.AtomicAck = uint64(was)
	return a
}

// append lets client i write node n and append it to another one; the server accepts the append.
func (b *box) append(i int, to, n layout.Handle, key uint64) {
	b.t.Helper()
	b.node(i, n, 1, key)
	f := b.cas(i, to, 1, n, 1)
	b.one(f)
	b.pass(answer(f, layout.Header(1)))
}

func frameOf(b []byte) packetio.Frame { return packetio.Frame{Data: b} }
