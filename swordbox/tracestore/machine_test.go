package tracestore

import (
	"bytes"
	_ "embed"
	"encoding/hex"
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
	"github.com/rdmalab/rdmalab/swordbox/packettrace"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

func ruleSet(t testing.TB, texts ...string) (*rules.Set, error) {
	t.Helper()
	hosts := map[string]netip.Addr{"ms0": netip.MustParseAddr("10.0.0.1"), "ms1": netip.MustParseAddr("10.0.0.2"), "ms2": netip.MustParseAddr("10.0.0.3")}
	var list []rules.Rule
	for _, text := range texts {
		r, err := rules.Parse(text)
		if err == nil {
			err = r.Resolve(func(name string) []netip.Addr {
				if a, ok := hosts[name]; ok {
					return []netip.Addr{a}
				}
				return nil
			})
		}
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return rules.NewSet(list)
}

// bed is a machine with rules, whose servers execute each WRITE, and answer it unless deaf is true.
type bed struct {
	t      *testing.T
	sw     *pipeline.Switch
	m      *Machine
	memory map[netip.Addr][]byte
	frames [][]byte // WRITEs that have left
	now    clock.Time
	deaf   bool
	ended  uint32 // generation of the last connection
}

const (
	bedBase  = 0x10000
	bedBytes = 1 << 16
)

type nothing struct{}

func (nothing) Spec() pipeline.Spec { return pipeline.Spec{Name: "nothing"} }

func (nothing) Packet(*pipeline.Ctx, *pipeline.Parsed) pipeline.Verdict { return pipeline.Forward() }
func (nothing) Tick(*pipeline.Ctx)                                      {}
func (nothing) Deadline() clock.Time                                    { return clock.Never }

func newBed(t *testing.T, texts ...string) *bed {
	t.Helper()
	b := &bed{t: t, memory: make(map[netip.Addr][]byte), now: clock.Time(time.Second)}
	var err error
	if b.sw, err = pipeline.New(pipeline.Config{Ports: 4, Program: nothing{}}); err != nil {
		t.Fatal(err)
	}
	b.m = New(handler.Env{Port: func(a netip.Addr) int { return int(a.As4()[3]) }})
	b.m.MarkIn(new(pipeline.MarkedPorts))
	b.rules(texts...)
	return b
}

func (b *bed) rules(texts ...string) {
	b.t.Helper()
	set, err := ruleSet(b.t, texts...)
	if err != nil {
		b.t.Fatal(err)
	}
	b.m.SetRules(set)
}

// connect gives the machine a connection to a server, and returns whether the machine takes it.
func (b *bed) connect(server string, mtu, size int) (ok bool) {
	a := netip.MustParseAddr(server)
	if b.memory[a] == nil {
		b.memory[a] = make([]byte, bedBytes)
	}
	g := memgrant.Grant{Conn: 1, Boot: 1, Region: memgrant.Region{Addr: bedBase, RKey: 7, Len: size}}
	b.ended++
	s := switchconn.Shared{
		Key: keyOf(a), Generation: b.ended, ServerQPN: 0x20, OwnQPN: wire.QPN(0x30 + int(a.As4()[3]) - 3), SendPSN: 0x123456,
		MTU: mtu, Depth: 16, Answer: g.AppendTo([]byte{memgrant.Version, memgrant.Kind}),
	}
	s.To.Eth = wire.Ethernet{Dst: wire.MAC{2, 0, 0, 0, 0, a.As4()[3]}, Src: wire.MAC{2, 0, 0, 0, 0, 0xaa}, Type: wire.EtherTypeIPv4}
	s.To.IPv4 = wire.IPv4{Src: [4]byte{10, 0, 0, 9}, Dst: a.As4(), TTL: 64, Protocol: wire.ProtocolUDP}
	s.To.UDP.SrcPort, s.To.BTH.PKey = 0xc000, wire.DefaultPKey
	b.step(0, func(c *pipeline.Ctx) { ok = b.m.Attach(c, s) })
	return ok
}

// step runs a step after a time, and executes the WRITEs that leave.
func (b *bed) step(after time.Duration, f func(c *pipeline.Ctx)) {
	for b.now = b.now.Add(after); f != nil; {
		var out packetio.Batch
		b.sw.Step(b.now, &out, f)
		f = nil
		var acks []*pipeline.Parsed
		for _, x := range out.Frames {
			var w wire.Frame
			if err := wire.ParseFrame(x.Data, &w); err != nil || w.BTH.Opcode != wire.RCWriteOnly || int(w.RETH.Length) != len(w.Payload) {
				b.t.Fatalf("%v: %v", w.BTH, err)
			}
			if x.Port != out.Frames[0].Port {
				continue // the switch floods, because it does not know the port of the server
			}
			b.frames = append(b.frames, bytes.Clone(x.Data))
			if b.deaf {
				continue
			}
			copy(b.memory[w.DstAddr()][w.RETH.VA-bedBase:], w.Payload)
			p := &pipeline.Parsed{}
			p.IPv4.Src, p.IPv4.Dst = w.IPv4.Dst, w.IPv4.Src
			p.BTH = wire.BTH{Opcode: wire.RCAck, DestQP: wire.QPN(0x30 + int(w.IPv4.Dst[3]) - 3), PSN: w.BTH.PSN}
			p.AETH.Syndrome = wire.AckNoCredits
			acks = append(acks, p)
		}
		if len(acks) > 0 {
			f = func(c *pipeline.Ctx) {
				for _, p := range acks {
					b.m.Owned(c, p)
				}
			}
		}
	}
}

func (b *bed) take(after time.Duration, in int, f packetio.Frame) {
	b.step(after, func(c *pipeline.Ctx) {
		if b.m.Take(c, in, f) {
			b.t.Error("the frame does not go on")
		}
	})
	b.accounted()
}

func (b *bed) tick(after time.Duration) { b.step(after, b.m.Tick); b.accounted() }

// accounted checks that each record is in exactly one place.
func (b *bed) accounted() {
	b.t.Helper()
	s := b.m.Stats()
	waiting, inFlight := b.m.Waiting()
	if s.Records != s.Stored+s.Uncertain+s.Dropped+waiting+inFlight {
		b.t.Errorf("%d waiting, %d in flight: %+v", waiting, inFlight, s)
	}
}

// numbers returns the numbers of the records in a server's memory, cell by cell; 0 is none.
func (b *bed) numbers(server string, offset, cells int) (list []uint64) {
	for i := range cells {
		var r packettrace.Record
		r.Parse(b.memory[netip.MustParseAddr(server)][offset+i*packettrace.Size:])
		list = append(list, r.Number)
	}
	return list
}

// udp returns a UDP packet of 122 bytes; its bytes are those of testdata/write.hex.
func udp(n byte) packetio.Frame {
	b, _ := hex.DecodeString("02000000000902000000000108004500006c00004000401126780a0000010a000009")
	b = append(b, 0x13, 0x88+n, 0, 7, 0, 88, 0, 0)
	for i := range byte(80) {
		b = append(b, n+i)
	}
	return packetio.Frame{Data: b}
}

// A WRITE of two records, whose bytes a Python script has computed by struct and zlib, with the ICRC of
// annex A17 of the specification.
//
//go:embed testdata/write.hex
var golden string

func TestWriteGolden(t *testing.T) {
	b := newBed(t, "id=a server=ms0 action=trace store=ms2 at=64 records=64 batch=2")
	if !b.connect("10.0.0.3", 1024, bedBytes) {
		t.Fatal("the connection was refused")
	}
	b.take(2*time.Microsecond, 1, udp(1))
	if len(b.frames) != 0 {
		t.Fatal("a batch of one record leaves at once")
	}
	b.take(time.Microsecond, 1, udp(2))
	want, err := hex.DecodeString(strings.ReplaceAll(golden, "\n", ""))
	if err != nil || len(b.frames) != 1 {
		t.Fatalf("%d WRITEs: %v", len(b.frames), err)
	}
	if !bytes.Equal(b.frames[0], want) {
		t.Errorf("got  %x\nwant %x", b.frames[0], want)
	}
	if s := b.m.Stats(); s.Stored != 2 || s.Writes != 1 || s.Packets != 2 || s.Sampled != 2 {
		t.Errorf("%+v", s)
	}
}
