package serialize_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/published/serialize"
)

// serverHost is the memory server; hosts 1 to 4 are clients. Host i is at port i, its queue pair
// 0x10+i is connected to the server's 0x20+i, and its first PSN is 100*i.
const serverHost = 0

// box is a switch with published rules, and the frames that it has sent.
type box struct {
	t    *testing.T
	sw   *pipeline.Switch
	prog *swordbox.Program
	now  clock.Time
	out  packetio.Batch
}

func newBox(t *testing.T) *box {
	set, err := rules.NewSet([]rules.Rule{{Server: addr(serverHost), Action: rules.Atomics, Mode: rules.Published}})
	if err != nil {
		t.Fatal(err)
	}
	b := &box{t: t, now: clock.Time(time.Second)}
	b.prog = swordbox.New(swordbox.Config{Rules: set, Handlers: []handler.Handler{serialize.New()}, Track: conntrack.Config{Settle: -1}})
	if b.sw, err = pipeline.New(pipeline.Config{Ports: 5, Program: b.prog}); err != nil {
		t.Fatal(err)
	}
	b.send(frame(serverHost, 1, 0x11, wire.UDSendOnly, 0)) // so that the switch learns its port
	for i := 1; i <= 4; i++ {
		b.send(datagram(i, serverHost, &mad.REQ{
			LocalID: mad.CommID(i), QPN: clientQP(i), PSN: 7, MTU: 3,
			Primary: mad.Path{LocalGID: addr(i).As16(), RemoteGID: addr(serverHost).As16()},
		}))
		b.send(datagram(serverHost, i, &mad.REP{LocalID: mad.CommID(0x80 + i), RemoteID: mad.CommID(i), QPN: serverQP(i), PSN: firstPSN(i)}))
	}
	return b
}

func clientQP(i int) wire.QPN    { return wire.QPN(0x10 + i) }
func serverQP(i int) wire.QPN    { return wire.QPN(0x20 + i) }
func firstPSN(i int) wire.PSN    { return wire.PSN(100 * i) }
func addr(i int) netip.Addr      { return netip.AddrFrom4([4]byte{10, 0, 0, byte(10 + i)}) }
func macOf(i int) wire.MAC       { return wire.MAC{2, 0, 0, 0, 0, byte(10 + i)} }
func hostOf(f *wire.Frame) int   { return int(f.IPv4.Dst[3]) - 10 }
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

// send passes a frame to the switch and returns the frames that leave.
func (b *box) send(f *wire.Frame) []wire.Frame {
	b.t.Helper()
	b.now = b.now.Add(time.Microsecond)
	b.out.Reset()
	b.sw.Frame(b.now, senderOf(f), packetio.Frame{Data: f.AppendTo(nil)}, &b.out)
	var list []wire.Frame
	for _, o := range b.out.Frames {
		var g wire.Frame
		if err := wire.ParseFrame(o.Data, &g); err != nil || !wire.CheckICRC(o.Data) {
			b.t.Fatalf("%x: %v, ICRC %v", o.Data, err, wire.CheckICRC(o.Data))
		}
		if hostOf(&g) != o.Port && !g.Eth.Dst.IsMulticast() && f.BTH.Opcode != wire.UDSendOnly {
			b.t.Fatalf("%v left by port %d", &g, o.Port)
		}
		list = append(list, g)
	}
	return list
}

// one is send for a frame that must leave as exactly one packet.
func (b *box) one(f *wire.Frame) *wire.Frame {
	b.t.Helper()
	list := b.send(f)
	if len(list) != 1 {
		b.t.Fatalf("%v: %d packets left: %v", f, len(list), list)
	}
	return &list[0]
}

// cas returns a CMP_SWAP of client i, its n-th request, on a word.
func cas(i, n int, va, compare, swap uint64) *wire.Frame {
	f := frame(i, serverHost, serverQP(i), wire.RCCmpSwap, firstPSN(i).Add(n))
	f.AtomicETH = wire.AtomicETH{VA: va, RKey: 5, Compare: compare, SwapOrAdd: swap}
	return f
}

// write returns an 8-byte WRITE of client i, its n-th request.
func write(i, n int, va uint64) *wire.Frame {
	f := frame(i, serverHost, serverQP(i), wire.RCWriteOnly, firstPSN(i).Add(n))
	f.RETH = wire.RETH{VA: va, RKey: 5, Length: 8}
	f.Payload = []byte("12345678")
	f.BTH.AckReq = true
	return f
}

// ack returns an answer of the server on the connection of client 1, which is the borrowed one.
func ack(psn wire.PSN, s wire.Syndrome) *wire.Frame {
	f := frame(serverHost, 1, clientQP(1), wire.RCAck, psn)
	f.AETH.Syndrome = s
	return f
}

// know makes a word known by the first request of client 1, which has PSN 100.
func (b *box) know(va, value uint64) {
	b.t.Helper()
	b.one(cas(1, 0, va, 0, 0))
	f := frame(serverHost, 1, clientQP(1), wire.RCAtomicAck, 100)
	f.AtomicAck = value
	b.one(f)
}

func (b *box) shared() handler.Shared {
	b.t.Helper()
	for _, m := range b.prog.Report(b.now).Handlers {
		if len(m.Shared) == 1 {
			return m.Shared[0]
		}
	}
	b.t.Fatal("no shared connection")
	return handler.Shared{}
}
