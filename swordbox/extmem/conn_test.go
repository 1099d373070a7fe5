package extmem

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memgrant"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/requester"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

var (
	switchMAC, serverMAC = wire.MAC{2, 0, 0, 0, 0, 1}, wire.MAC{2, 0, 0, 0, 0, 2}
	lent                 = memgrant.Grant{Region: memgrant.Region{Addr: 1 << 40, RKey: 0x1234, Len: 1 << 20}}
)

// rig is a switch with a Conn to a server. It records what the switch sends.
type rig struct {
	t    *testing.T
	now  clock.Time
	sw   *pipeline.Switch
	out  packetio.Batch
	conn Conn
	own  bool // what Conn.Packet said of the last packet
	done []requester.Kind
	lost []string
}

func (r *rig) Spec() pipeline.Spec { return pipeline.Spec{Name: "test"} }
func (r *rig) Packet(c *pipeline.Ctx, p *pipeline.Parsed) pipeline.Verdict {
	r.own = r.conn.Packet(c, p)
	return pipeline.Consume()
}
func (r *rig) Tick(c *pipeline.Ctx) { r.conn.Tick(c) }
func (r *rig) Deadline() clock.Time { return r.conn.Deadline() }

func (r *rig) Done(_ *pipeline.Ctx, _ requester.Tag, a requester.Answer) {
	r.done = append(r.done, a.Kind)
}

func (r *rig) Retry(t requester.Tag) bool { return r.conn.Retry(t) }

func (r *rig) Failed(_ *pipeline.Ctx, why string)      { r.lost = append(r.lost, why) }
func (r *rig) Describe(requester.Tag, *transform.Note) {}

func newRig(t *testing.T, silence time.Duration) *rig {
	r := &rig{t: t}
	var err error
	r.sw, err = pipeline.New(pipeline.Config{Ports: 2, Program: r, Self: pipeline.Self{MAC: switchMAC, Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}}})
	if err != nil {
		t.Fatal(err)
	}
	r.conn = NewConn(1, silence, r)
	r.frame(wire.Frame{})
	return r
}

// shared is a connection to the server.
func shared(v6 bool) *switchconn.Shared {
	s := &switchconn.Shared{ServerQPN: 0x88, OwnQPN: 0x77, SendPSN: 0xffffff, RecvPSN: 5, MTU: 1024, Depth: 2}
	s.To.V6 = v6
	s.To.Eth = wire.Ethernet{Src: switchMAC, Dst: serverMAC}
	s.To.IPv4 = wire.IPv4{Src: [4]byte{10, 0, 0, 1}, Dst: [4]byte{10, 0, 0, 2}, TTL: 64, DF: true}
	s.To.IPv6 = wire.IPv6{Src: netip.MustParseAddr("fd00::1").As16(), Dst: netip.MustParseAddr("fd00::2").As16(), HopLimit: 64}
	s.To.BTH = wire.BTH{PKey: wire.DefaultPKey}
	return s
}

// frame passes a packet of the server to the switch, which thereby learns its port.
func (r *rig) frame(f wire.Frame) {
	f.Eth = wire.Ethernet{Src: serverMAC, Dst: switchMAC}
	if f.BTH.DestQP = 0x77; f.IPv4.Src == ([4]byte{}) {
		f.IPv4.Src = [4]byte{10, 0, 0, 2}
	}
	f.IPv4.Dst, f.IPv4.TTL, f.BTH.PKey = [4]byte{10, 0, 0, 1}, 64, wire.DefaultPKey
	r.sw.Frame(r.now, 1, packetio.Frame{Data: f.AppendTo(nil)}, &r.out)
	r.out.Reset()
}

// sent runs a step of the switch, and returns what it has sent.
func (r *rig) sent(step func(c *pipeline.Ctx)) (list []wire.Frame) {
	r.t.Helper()
	r.sw.Step(r.now, &r.out, step)
	for _, f := range r.out.Frames {
		var q wire.Frame
		if err := wire.ParseFrame(slices.Clone(f.Data), &q); err != nil || !wire.CheckICRC(f.Data) {
			r.t.Fatalf("%v: %v", err, &q)
		}
		list = append(list, q)
	}
	r.out.Reset()
	return list
}

// is compares a packet with the request for n bytes at an offset.
func (r *rig) is(f wire.Frame, v6 bool, op wire.Opcode, psn wire.PSN, offset uint64, n int, payload []byte) {
	r.t.Helper()
	want := wire.RETH{VA: lent.Region.Addr + offset, RKey: lent.Region.RKey, Length: uint32(n)}
	if f.V6 != v6 || f.BTH.Opcode != op || f.BTH.PSN != psn || f.BTH.DestQP != 0x88 || f.RETH != want || !bytes.Equal(f.Payload, payload) || f.Eth.Dst != serverMAC {
		r.t.Errorf("%+v; want %v %v of %+v with %q", f, op, psn, want, payload)
	}
}

// A Conn sends requests for the memory that the server lends, takes the packets of this server alone,
// and keeps a WRITE without its bytes.
func TestConn(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		r := newRig(t, 0)
		if r.conn.Up() || r.conn.Reads() {
			t.Error("there is a connection before there is one")
		}
		r.sent(func(*pipeline.Ctx) { r.conn.Attach(shared(v6), lent) })
		if !r.conn.Up() || !r.conn.Reads() {
			t.Error("there is no connection")
		}
		got := r.sent(func(c *pipeline.Ctx) {
			r.conn.Write(c, 64, []byte("a packet"))
			r.conn.Submit(c, r.conn.Request(wire.RCReadRequest, 128, 16), requester.Tag{})
		})
		if len(got) != 2 {
			t.Fatalf("%d packets", len(got))
		}
		r.is(got[0], v6, wire.RCWriteOnly, 0xffffff, 64, 8, []byte("a packet"))
		r.is(got[1], v6, wire.RCReadRequest, 0, 128, 16, nil)
		if v6 {
			continue
		}
		ack := wire.Frame{}
		ack.BTH = wire.BTH{Opcode: wire.RCAck, PSN: 0xffffff}
		ack.AETH = wire.AETH{Syndrome: wire.AckNoCredits, MSN: 1}
		ack.IPv4.Src = [4]byte{10, 0, 0, 3}
		if r.frame(ack); r.own || len(r.done) != 0 {
			t.Errorf("a packet of another host is taken: %v", r.done)
		}
		ack.IPv4.Src = [4]byte{}
		if r.frame(ack); !r.own || !slices.Equal(r.done, []requester.Kind{requester.Acked}) {
			t.Errorf("after the acknowledgement: %v", r.done)
		}
		nak := ack
		nak.BTH.PSN, nak.AETH.Syndrome = 0, wire.NakRemoteAccess
		if r.frame(nak); !slices.Equal(r.done, []requester.Kind{requester.Acked, requester.Refused}) || r.conn.Up() {
			t.Errorf("after a refusal: %v, up %v", r.done, r.conn.Up())
		}
	}
}

// As many READs as the server takes are sent at once. Of those behind them one may wait for a place
// among those in flight.
func TestConnReads(t *testing.T) {
	r := newRig(t, 0)
	r.sent(func(*pipeline.Ctx) { r.conn.Attach(shared(false), lent) })
	for i := range 2 {
		if !r.conn.Reads() {
			t.Errorf("no READ is sent after %d", i)
		}
		if got := r.sent(func(c *pipeline.Ctx) { r.conn.Submit(c, r.conn.Request(wire.RCReadRequest, 0, 16), requester.Tag{}) }); len(got) != 1 {
			t.Errorf("%d packets", len(got))
		}
	}
	if r.conn.Reads() {
		t.Error("more READs than the server takes")
	}
	taken := 2
	r.sent(func(c *pipeline.Ctx) {
		for taken <= 2*InFlight && r.conn.Submit(c, r.conn.Request(wire.RCReadRequest, 0, 16), requester.Tag{}) {
			taken++
		}
	})
	if taken != InFlight+1 {
		t.Errorf("%d requests are taken", taken)
	}
}

// A server that does not answer is given up after the time that the program sets, by default after
// 255 ms.
func TestConnSilence(t *testing.T) {
	for silence, want := range map[time.Duration]time.Duration{0: 255 * time.Millisecond, 20 * time.Millisecond: 20 * time.Millisecond} {
		r := newRig(t, silence)
		r.sent(func(c *pipeline.Ctx) {
			r.conn.Attach(shared(false), lent)
			r.conn.Write(c, 0, []byte("x"))
		})
		for r.conn.Up() && r.now < clock.Time(time.Second) {
			r.now = r.sw.Deadline()
			r.sw.Tick(r.now, &r.out)
		}
		if took := time.Duration(r.now); took < want || took > want*3/2 || len(r.lost) != 1 {
			t.Errorf("given up after %v, want %v: %v", took, want, r.lost)
		}
	}
}

// Connections have different nonces, if their queue pairs or PSNs differ.
func TestNonce(t *testing.T) {
	seen := map[uint32]bool{}
	for _, qpn := range []wire.QPN{1, 2, 0x77, 0xffffff} {
		for _, psn := range []wire.PSN{0, 1, 2, 0x40, 0x7f} {
			k := NewConn(1, 0, nil)
			s := shared(false)
			s.OwnQPN, s.RecvPSN = qpn, psn
			if k.Attach(s, lent); seen[k.Nonce()] {
				t.Errorf("queue pair %v and PSN %v: nonce %#x again", qpn, psn, k.Nonce())
			}
			seen[k.Nonce()] = true
		}
	}
}

// A Blind sends the same requests, each with the next PSN, and is told when its connection ends.
func TestBlind(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		r := newRig(t, 0)
		var k Blind
		if k.Up() {
			t.Error("there is a connection before there is one")
		}
		if k.Attach(shared(v6), lent); !k.Up() {
			t.Error("there is no connection")
		}
		got := r.sent(func(c *pipeline.Ctx) {
			k.Send(c, wire.RCWriteOnly, 64, 8, []byte("a packet"))
			k.Send(c, wire.RCReadRequest, 128, 16, nil)
		})
		if len(got) != 2 {
			t.Fatalf("%d packets", len(got))
		}
		r.is(got[0], v6, wire.RCWriteOnly, 0xffffff, 64, 8, []byte("a packet"))
		r.is(got[1], v6, wire.RCReadRequest, 0, 128, 16, nil)
		if k.Detach(); k.Up() {
			t.Error("there is a connection after its end")
		}
	}
}

// A published handler's connections have their own shard numbers.
func TestShard(t *testing.T) {
	if a, b := Shard(3, rules.Hardened), Shard(3, rules.Published); a != 3 || b != 3+switchconn.PublishedShard {
		t.Errorf("%d and %d", a, b)
	}
}
