package netcache

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memgrant"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

// ruleOf reads a rule for the key-value server 10.0.0.1 with values in the memory of 10.0.0.2.
func ruleOf(keys string) (*rules.Set, error) {
	r, err := rules.Parse("id=kv server=10.0.0.1 action=cache " + keys)
	if err != nil {
		return nil, err
	}
	return rules.NewSet([]rules.Rule{r})
}

// bed is a machine with a rule, whose memory server executes the requests of the switch unless held is true.
type bed struct {
	t      *testing.T
	sw     *pipeline.Switch
	m      *Machine
	memory []byte
	now    clock.Time
	held   bool
	wait   []wire.Frame // answers of the memory server
	left   [][]byte     // UDP packets to port 11211 or from it that have left
}

const bedBase = 0x10000

type nothing struct{}

func (nothing) Spec() pipeline.Spec { return pipeline.Spec{Name: "nothing"} }

func (nothing) Packet(*pipeline.Ctx, *pipeline.Parsed) pipeline.Verdict { return pipeline.Forward() }
func (nothing) Tick(*pipeline.Ctx)                                      {}
func (nothing) Deadline() clock.Time                                    { return clock.Never }

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{t: t, memory: make([]byte, 1<<16), now: clock.Time(time.Second)}
	var err error
	if b.sw, err = pipeline.New(pipeline.Config{Ports: 4, Program: nothing{}}); err != nil {
		t.Fatal(err)
	}
	b.m = New(handler.Env{Port: func(a netip.Addr) int { return int(a.As4()[3]) }})
	set, err := ruleOf("store=10.0.0.2 hot=1 items=8 size=128")
	if err != nil {
		t.Fatal(err)
	}
	b.m.SetRules(set)
	a := netip.MustParseAddr("10.0.0.2")
	g := memgrant.Grant{Conn: 1, Boot: 1, Region: memgrant.Region{Addr: bedBase, RKey: 7, Len: len(b.memory)}}
	s := switchconn.Shared{
		Key: keyOf(a, 1), Generation: 1, ServerQPN: 0x20, OwnQPN: 0x30, SendPSN: 0x123456, MTU: 1024, Depth: 16, Answer: g.AppendTo([]byte{memgrant.Version, memgrant.Kind}),
	}
	s.To.Eth = wire.Ethernet{Dst: wire.MAC{2, 0, 0, 0, 0, 2}, Src: wire.MAC{2, 0, 0, 0, 0, 0xaa}, Type: wire.EtherTypeIPv4}
	s.To.IPv4 = wire.IPv4{Src: [4]byte{10, 0, 0, 9}, Dst: a.As4(), TTL: 64, Protocol: wire.ProtocolUDP}
	s.To.UDP.SrcPort, s.To.BTH.PKey = 0xc000, wire.DefaultPKey
	b.step(func(c *pipeline.Ctx) {
		if !b.m.Attach(c, s) {
			t.Fatal("the connection is not used")
		}
	})
	return b
}

// step runs a step, and those that the answers of the memory server need.
func (b *bed) step(f func(c *pipeline.Ctx)) {
	b.t.Helper()
	for b.now++; f != nil; {
		var out packetio.Batch
		b.sw.Step(b.now, &out, f)
		for _, x := range out.Frames {
			var w wire.Frame
			switch {
			case x.Port != out.Frames[0].Port: // the switch floods, because it does not know the port
			case binary.BigEndian.Uint16(x.Data[36:]) != wire.UDPPort:
				b.left = append(b.left, bytes.Clone(x.Data))
			case wire.ParseFrame(bytes.Clone(x.Data), &w) != nil:
				b.t.Fatalf("%x", x.Data)
			default:
				b.execute(&w)
			}
		}
		f = nil
		if len(b.wait) > 0 && !b.held {
			list := b.wait
			b.wait = nil
			f = func(c *pipeline.Ctx) {
				for i := range list {
					b.m.Owned(c, &pipeline.Parsed{Frame: list[i]})
				}
			}
		}
	}
	if s := b.m.Stats(); s.Gets != s.Answered+s.Forwarded+s.Dropped+uint64(b.m.Waiting()) {
		b.t.Errorf("%d wait: %+v", b.m.Waiting(), s)
	}
}

func (b *bed) execute(w *wire.Frame) {
	at := b.memory[w.RETH.VA-bedBase:][:w.RETH.Length]
	var a wire.Frame
	a.IPv4.Src, a.IPv4.Dst = w.IPv4.Dst, w.IPv4.Src
	a.BTH = wire.BTH{Opcode: wire.RCAck, DestQP: 0x30, PSN: w.BTH.PSN}
	a.AETH.Syndrome = wire.AckNoCredits
	if w.BTH.Opcode == wire.RCReadRequest {
		a.BTH.Opcode, a.Payload = wire.RCReadResponseOnly, bytes.Clone(at)
	} else {
		copy(at, w.Payload)
	}
	b.wait = append(b.wait, a)
}

// send gives the machine a datagram of the client 10.0.0.3, or of the server to a port of it, and returns what leaves.
func (b *bed) send(toServer bool, port, id uint16, text string) (left []string) {
	b.t.Helper()
	p := packet{payload: datagram(id, ""), dst: [16]byte{10, 0, 0, 3}, src: [16]byte{10, 0, 0, 1}, dstPort: port, srcPort: 11211, ip: 14}
	from := 3
	if !toServer {
		p.src, p.dst, p.srcPort, p.dstPort, from = p.dst, p.src, p.dstPort, p.srcPort, 1
	}
	// An answer to a packet goes the other way.
	data := p.appendAnswer(nil, append(make([]byte, 12), 8, 0), []byte(text))
	b.left = nil
	b.step(func(c *pipeline.Ctx) {
		if !b.m.Take(c, from, packetio.Frame{Data: data}) {
			c.Resume(from, -1, packetio.Frame{Data: data}, "")
		}
	})
	return b.texts()
}

// texts returns what has left: ports, number and text of each datagram.
func (b *bed) texts() (list []string) {
	b.t.Helper()
	for _, f := range b.left {
		var p packet
		if !p.parse(f) || p.payload == nil || !p.intact(&packetio.Frame{Data: f}) {
			b.t.Fatalf("%x", f)
		}
		list = append(list, string(p.payload[headLen:]))
	}
	return list
}

// left1 returns the client's port and the number of the request of the only datagram that has left.
func (b *bed) left1() (port, id uint16) {
	b.t.Helper()
	var p packet
	if len(b.left) != 1 || !p.parse(b.left[0]) {
		b.t.Fatalf("%d datagrams have left", len(b.left))
	}
	if port = p.srcPort; port == 11211 {
		port = p.dstPort
	}
	return port, binary.BigEndian.Uint16(p.payload)
}

const item = "VALUE foo 0 5\r\nhello\r\nEND\r\n"

// fill makes the value of foo answer GETs.
func (b *bed) fill() {
	b.t.Helper()
	b.send(true, 40000, 1, "get foo\r\n")
	port, id := b.left1()
	if port < firstPort {
		b.t.Fatalf("the GET leaves from port %d", port)
	}
	got := b.send(false, port, id, item)
	if port, id := b.left1(); len(got) != 1 || got[0] != item || port != 40000 || id != 1 {
		b.t.Fatalf("%q to port %d, %d", got, port, id)
	}
	if got := b.send(false, port, id, item); len(got) != 0 {
		b.t.Errorf("the answer to the probe goes on twice: %q", got)
	}
}

// The switch answers the second GET of a key, with the number of its request, and other requests go to the server.
func TestSecondGetIsAnswered(t *testing.T) {
	b := newBed(t)
	b.fill()
	got := b.send(true, 40001, 7, "get foo\r\n")
	if port, id := b.left1(); got[0] != item || port != 40001 || id != 7 {
		t.Errorf("%q to port %d, %d", got, port, id)
	}
	for i, text := range []string{"gets foo\r\n", "get foo bar\r\n", "touch foo 0\r\n"} {
		if got := b.send(true, 40001, uint16(8+i), text); len(got) != 1 || got[0] != text {
			t.Errorf("%q becomes %q", text, got)
		}
	}
	if s := b.m.Stats(); s.Answered != 1 || s.Filled != 1 || s.Gets != 2 || s.Writes != 1 {
		t.Errorf("%+v", s)
	}
}

// After each of these the next GET goes to the server.
func TestWhatMakesTheServerAnswer(t *testing.T) {
	for what, f := range map[string]func(b *bed){
		"a write":                    func(b *bed) { b.send(true, 40001, 9, "set foo 0 0 1\r\nx\r\n") },
		"an answer to no request":    func(b *bed) { b.send(false, 40001, 99, "STORED\r\n") },
		"an answer in two datagrams": func(b *bed) { b.send(true, 40001, 9, "gets foo\r\n"); b.send(false, 40001, 9, "VALUE foo") },
		"the answer to flush_all":    func(b *bed) { b.send(true, 40001, 9, "flush_all\r\n"); b.send(false, 40001, 9, "OK\r\n") },
		"another value": func(b *bed) {
			b.send(true, 40001, 9, "gets foo\r\n")
			b.send(false, 40001, 9, "VALUE foo 0 1 9\r\nx\r\nEND\r\n")
		},
		"no value":                   func(b *bed) { b.send(true, 40001, 9, "gets foo\r\n"); b.send(false, 40001, 9, "END\r\n") },
		"an operator who clears it":  func(b *bed) { b.m.ClearTable("") },
		"a time longer than the age": func(b *bed) { b.now = b.now.Add(2 * time.Second) },
		"a rule with another capacity": func(b *bed) {
			set, err := ruleOf("store=10.0.0.2 hot=1 items=16 size=128")
			if err != nil {
				b.t.Fatal(err)
			}
			b.m.SetRules(set)
		},
	} {
		b := newBed(t)
		b.fill()
		f(b)
		if got := b.send(true, 40001, 10, "get foo\r\n"); len(got) != 1 || got[0] != "get foo\r\n" {
			t.Errorf("%s: %q", what, got)
		}
	}
	b := newBed(t)
	b.fill()
	b.send(true, 40001, 9, "gets foo\r\n")
	b.send(false, 40001, 9, "VALUE foo 0 5 9\r\nhello\r\nEND\r\n")
	if got := b.send(true, 40001, 10, "get foo\r\n"); len(got) != 1 || got[0] != item {
		t.Errorf("an answer with the same value: %q", got)
	}
}

// A write whose answer passes while the value is read makes the GET go to the server.
func TestChangeDuringTheRead(t *testing.T) {
	b := newBed(t)
	b.fill()
	b.send(true, 40002, 5, "incr foo 1\r\n")
	b.fill() // behind the request of the write
	b.held = true
	if got := b.send(true, 40001, 7, "get foo\r\n"); len(got) != 0 {
		t.Fatalf("%q", got)
	}
	b.send(false, 40002, 5, "6\r\n")
	b.held = false
	b.left = nil
	b.step(func(c *pipeline.Ctx) {})
	if got := b.texts(); len(got) != 1 || got[0] != "get foo\r\n" || b.m.Stats().Stale != 1 {
		t.Errorf("%q, %+v", got, b.m.Stats())
	}
}

// A client gets the answer to its GET that has left as a probe, however many probes have left since, and although
// writes of their keys have made them useless.
func TestProbesKeepTheirClients(t *testing.T) {
	b := newBed(t)
	b.send(true, 40000, 1, "get foo\r\n")
	port, id := b.left1()
	for i := range uint16(2 * maxProbes) {
		b.send(true, 40001, i, "set foo 0 0 1\r\nx\r\n")
		b.send(true, 40002, i, "get foo\r\n")
	}
	if got := b.send(false, port, id, item); len(got) != 1 || got[0] != item {
		t.Fatalf("%q", got)
	}
	if port, id := b.left1(); port != 40000 || id != 1 {
		t.Errorf("to port %d, %d", port, id)
	}
}

// A memory that does not have the value that it should have costs a GET at the server.
func TestMemoryThatHasLostAValue(t *testing.T) {
	for i, f := range []func(b *bed){
		func(b *bed) { clear(b.memory) },
		func(b *bed) { copy(b.memory, bytes.Replace(b.memory, []byte("hello"), []byte("jello"), 1)) },
		func(b *bed) { b.memory[3+bytes.Index(b.memory, []byte("VALUE"))-cellHead]++ },
	} {
		b := newBed(t)
		b.fill()
		f(b)
		if got := b.send(true, 40001, 7, "get foo\r\n"); len(got) != 1 || got[0] != "get foo\r\n" || b.m.Stats().Lost != 1 {
			t.Errorf("%d: %q, %+v", i, got, b.m.Stats())
		}
	}
}

func TestRules(t *testing.T) {
	for keys, want := range map[string]string{
		"": "needs the key store", "store=10.0.0.2 mode=published": "no mode", "store=10.0.0.2 size=60": "no number", "store=10.0.0.2 size=100": "multiple", "store=10.0.0.2 size=512 mtu=256": "path MTU",
		"store=10.0.0.2 age=0s": "no duration", "store=10.0.0.2 kvport=4791": "RoCEv2", "store=10.0.0.2 service=none": "service none", "store=10.0.0.2 rkey=1": "rkey", "store=10.0.0.2 shards=2": "shards",
	} {
		if _, err := ruleOf(keys); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", keys, err)
		}
	}
}
