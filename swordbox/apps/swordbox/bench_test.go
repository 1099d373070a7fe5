package swordbox_test

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
	"github.com/rdmalab/rdmalab/swordbox/apps/forward"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/journal"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	publishedserialize "github.com/rdmalab/rdmalab/swordbox/published/serialize"
	"github.com/rdmalab/rdmalab/swordbox/serialize"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

// What a packet costs in the switch, against plain forwarding of the same packets in the same run:
//
//	go test -run xxx -bench Cost ./swordbox/apps/swordbox
//
// The metric x/plain is the ratio. Rounds of the two take turns, so that a change of the machine's
// pace hits both, and the median of the rounds counts.

// Host 0 is the memory server, 9 the switch; the others are clients, host i at port i.
const (
	benchClients = 8
	benchServer  = 0
	benchSwitch  = 9
	benchWord    = 0x10000
	benchMTU     = 1024
)

func benchIP(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(10 + i)}) }
func benchMAC(i int) wire.MAC  { return wire.MAC{2, 0, 0, 0, 0, byte(10 + i)} }

func benchFrame(from, to int, qpn wire.QPN, op wire.Opcode, psn wire.PSN) *wire.Frame {
	f := &wire.Frame{Eth: wire.Ethernet{Src: benchMAC(from), Dst: benchMAC(to)}}
	f.IPv4 = wire.IPv4{TTL: 64, DF: true, Src: benchIP(from).As4(), Dst: benchIP(to).As4()}
	f.UDP.SrcPort = uint16(0xc000 + from)
	f.BTH = wire.BTH{Opcode: op, PKey: wire.DefaultPKey, DestQP: qpn, PSN: psn}
	f.AETH.Syndrome = wire.AckNoCredits
	return f
}

// bench is a switch with the connections of its clients announced.
type bench struct {
	tb  testing.TB
	sw  *pipeline.Switch
	now clock.Time
	out packetio.Batch
}

func newBench(tb testing.TB, p pipeline.Program) *bench {
	sw, err := pipeline.New(pipeline.Config{
		Ports: benchClients + 1, Program: p, Self: pipeline.Self{MAC: benchMAC(benchSwitch), Addrs: []netip.Addr{benchIP(benchSwitch)}},
	})
	if err != nil {
		tb.Fatal(err)
	}
	b := &bench{tb: tb, sw: sw, now: clock.Time(time.Second)}
	for i := 1; i <= benchClients; i++ {
		req := benchFrame(i, benchServer, 1, wire.UDSendOnly, 0)
		req.Payload = mad.Append(nil, 1, &mad.REQ{
			LocalID: mad.CommID(i), QPN: benchQP(i), PSN: 7, MTU: 3,
			Primary: mad.Path{LocalGID: benchIP(i).As16(), RemoteGID: benchIP(benchServer).As16()},
		})
		b.frame(i, req)
		rep := benchFrame(benchServer, i, 1, wire.UDSendOnly, 0)
		rep.Payload = mad.Append(nil, 1, &mad.REP{LocalID: mad.CommID(0x80 + i), RemoteID: mad.CommID(i), QPN: benchQP(-i), PSN: 0})
		b.frame(benchServer, rep)
	}
	return b
}

// benchQP returns the queue pair of client i, or the server's queue pair for it if i is negative.
func benchQP(i int) wire.QPN { return wire.QPN(0x100 + i) }

// frame passes a frame to the switch and returns the frames that leave it.
func (b *bench) frame(port int, f *wire.Frame) []packetio.Frame {
	b.now = b.now.Add(time.Microsecond)
	b.out.Reset()
	b.sw.Frame(b.now, port, packetio.Frame{Data: f.AppendTo(nil)}, &b.out)
	return b.out.Frames
}

// stream returns exchange i: a request with the port of its client, and the server's answer.
type stream func(i int) (client int, request, answer *wire.Frame)

// shot is an encoded frame and the port at which it arrives.
type shot struct {
	port int
	data []byte
	seg  int // packets of a super-frame
}

const roundPackets = 512

// loader encodes the frames of a round into shots, and reuses their memory in the next round.
type loader func(shots []shot, round int)

// each loads exchanges of single packets.
func each(make stream) loader {
	return func(shots []shot, round int) {
		for i := 0; i < roundPackets; i += 2 {
			port, request, answer := make((round*roundPackets + i) / 2)
			shots[i] = shot{port, request.AppendTo(shots[i].data[:0]), 0}
			shots[i+1] = shot{benchServer, answer.AppendTo(shots[i+1].data[:0]), 0}
		}
	}
}

// supers loads WRITEs of client 1 in super-frames of n packets of 1 KiB, each of which is
// acknowledged.
func supers(n int) loader {
	return func(shots []shot, round int) {
		for i := 0; i < roundPackets; i += 2 {
			psn := wire.PSN(0).Add((round*roundPackets + i) / 2 * n)
			data := shots[i].data[:0]
			var seg int
			for k := range n {
				f := benchFrame(1, benchServer, benchQP(-1), wire.RCWriteMiddle, psn.Add(k))
				f.Payload = make([]byte, benchMTU)
				packet := f.AppendTo(nil)
				if k == 0 {
					data = append(data, packet[:42]...)
				}
				data = append(data, packet[42:]...)
				seg = len(packet) - 42
			}
			binary.BigEndian.PutUint16(data[16:], uint16(len(data)-14))
			binary.BigEndian.PutUint16(data[38:], uint16(len(data)-34))
			shots[i] = shot{1, data, seg}
			ack := benchFrame(benchServer, 1, benchQP(1), wire.RCAck, psn.Add(n-1))
			shots[i+1] = shot{benchServer, ack.AppendTo(shots[i+1].data[:0]), 0}
		}
	}
}

// play runs the frames of a round through the switch and returns the time per packet.
func (b *bench) play(shots []shot) time.Duration {
	begin := time.Now()
	for _, s := range shots {
		b.now += 1000
		b.out.Reset()
		b.sw.Frame(b.now, s.port, packetio.Frame{Data: s.data, SegSize: s.seg}, &b.out)
	}
	return time.Since(begin) / time.Duration(len(shots))
}

// race runs the same stream through plain forwarding and through a program, in turns, and compares
// the times.
func race(tb *testing.B, program *bench, load loader) {
	race2(tb, program, load, load)
}

// race2 is race for a program that gets a different stream than plain forwarding.
func race2(tb *testing.B, program *bench, load, loadPlain loader) {
	plain := newBench(tb, forward.Program{})
	var with, without []float64
	packets, round := 0, 0
	shots, plainShots := new([roundPackets]shot)[:], new([roundPackets]shot)[:]
	tb.ReportAllocs()
	tb.StopTimer()
	for packets < tb.N || round < 3 {
		load(shots, round)
		loadPlain(plainShots, round)
		tb.StartTimer()
		with = append(with, float64(program.play(shots)))
		tb.StopTimer()
		without = append(without, float64(plain.play(plainShots)))
		packets += len(shots)
		round++
	}
	slices.Sort(with)
	slices.Sort(without)
	a, p := with[len(with)/2], without[len(without)/2]
	tb.ReportMetric(a, "ns/packet")
	tb.ReportMetric(p, "plain-ns/packet")
	tb.ReportMetric(a/p, "x/plain")
}

// writes is a stream in which all clients in turn send WRITEs of n bytes, each of which is
// acknowledged.
func writes(clients, n int) stream {
	payload := make([]byte, n)
	return func(i int) (int, *wire.Frame, *wire.Frame) {
		c, psn := 1+i%clients, wire.PSN(0).Add(i/clients)
		f := benchFrame(c, benchServer, benchQP(-c), wire.RCWriteOnly, psn)
		f.RETH = wire.RETH{VA: benchWord + 64, RKey: 5, Length: uint32(n)}
		f.Payload, f.BTH.AckReq = payload, true
		return c, f, benchFrame(benchServer, c, benchQP(c), wire.RCAck, psn)
	}
}

// tracker is the program without rules.
func tracker(tb testing.TB) *bench {
	return newBench(tb, swordbox.New(swordbox.Config{Own: own(tb), Track: conntrack.Config{Settle: -1}}))
}

// own makes the switch an end of connections, as on a rack.
func own(tb testing.TB) *swordbox.Own { return ownOf(tb, nil) }

// ownOf is own for a switch with a journal.
func ownOf(tb testing.TB, rec *journal.Journal) *swordbox.Own {
	tb.Helper()
	d, err := switchconn.New(switchconn.Config{
		MAC: benchMAC(benchSwitch), IPv4: benchIP(benchSwitch), Rand: rand.New(rand.NewPCG(1, 1)), Journal: rec,
		Resolve: func(netip.Addr) (wire.MAC, bool) { return wire.MAC{}, false },
	})
	if err != nil {
		tb.Fatal(err)
	}
	return swordbox.NewOwn(d, rec)
}

// BenchmarkCostTracked measures a packet that is tracked and not moved: 1.6 to 1.8 times plain forwarding.
func BenchmarkCostTracked(b *testing.B) {
	b.Run("64B", func(b *testing.B) { race(b, tracker(b), each(writes(1, 64))) })
	b.Run("1KiB", func(b *testing.B) { race(b, tracker(b), each(writes(1, 1024))) })
	b.Run("super8", func(b *testing.B) { race(b, tracker(b), supers(8)) })
	b.Run("8clients", func(b *testing.B) { race(b, tracker(b), each(writes(benchClients, 64))) })
}

// ruled returns the program with a rule for the atomics on the server.
func ruled(tb testing.TB, m rules.Mode) (*bench, *swordbox.Program) { return ruledWith(tb, m) }

// ruledWith is ruled with additional handlers.
func ruledWith(tb testing.TB, m rules.Mode, more ...handler.Handler) (*bench, *swordbox.Program) {
	set, err := rules.NewSet([]rules.Rule{{Server: benchIP(benchServer), Action: rules.Atomics, Mode: m, From: benchWord, To: benchWord + 8}})
	if err != nil {
		tb.Fatal(err)
	}
	h := serialize.New(serialize.Config{})
	h.SetRules(set)
	p := swordbox.New(swordbox.Config{Rules: set, Own: own(tb), Handlers: append([]handler.Handler{h, publishedserialize.New()}, more...), Track: conntrack.Config{Settle: -1}})
	b := newBench(tb, p)
	if m == rules.Published {
		return b, p
	}
	b.sw.Step(b.now, &b.out, func(c *pipeline.Ctx) {
		to := benchFrame(benchSwitch, benchServer, 0x300, wire.RCWriteOnly, 0)
		ok := h.Attach(c, switchconn.Shared{
			Key: switchconn.Key{Server: benchIP(benchServer)}, Generation: 1, ServerQPN: 0x300, OwnQPN: 0x301, MTU: benchMTU, Depth: 16, To: *to,
		})
		if !ok {
			tb.Fatal("the shared connection was refused")
		}
	})
	return b, p
}

// BenchmarkCostUnmoved measures a packet of a flow under a rule that does not select the request.
func BenchmarkCostUnmoved(b *testing.B) {
	for _, m := range []rules.Mode{rules.Hardened, rules.Published} {
		b.Run(m.String(), func(b *testing.B) {
			r, _ := ruled(b, m)
			race(b, r, each(writes(1, 64)))
		})
	}
}

// BenchmarkCostReplaced measures a FETCH_ADD that is replaced by a WRITE, and the WRITE's
// acknowledgement, which is replaced by the answer of the FETCH_ADD. Such a packet takes 3 to 4
// times as long as with plain forwarding.
func BenchmarkCostReplaced(b *testing.B) {
	for _, m := range []rules.Mode{rules.Hardened, rules.Published} {
		b.Run(m.String(), func(b *testing.B) {
			r, p := ruled(b, m)
			next := r.warm()
			race2(b, r, each(r.atomics(next, p)), each(plainAtomics))
			if got := replaced(p); got < uint64(b.N)/3 {
				b.Errorf("only %d atomics were replaced", got)
			}
		})
	}
}

// faa returns the n-th request of client 1.
func faa(n int) *wire.Frame {
	f := benchFrame(1, benchServer, benchQP(-1), wire.RCFetchAdd, wire.PSN(0).Add(n))
	f.AtomicETH = wire.AtomicETH{VA: benchWord, RKey: 5, SwapOrAdd: 1}
	return f
}

// warm sends atomics of client 1 until the switch replaces them; it returns the number of requests.
func (b *bench) warm() int {
	b.tb.Helper()
	value := uint64(0)
	for n := range 16 {
		for _, out := range append([]packetio.Frame(nil), b.frame(1, faa(n))...) {
			var f wire.Frame
			if err := wire.ParseFrame(append([]byte(nil), out.Data...), &f); err != nil || out.Port != benchServer {
				b.tb.Fatalf("port %d: %v, %v", out.Port, &f, err)
			}
			answer := benchFrame(benchServer, int(f.IPv4.Src[3])-10, 0x301, wire.RCAck, f.BTH.PSN)
			if f.BTH.DestQP != 0x300 {
				answer.BTH.DestQP = benchQP(1)
			}
			answer.AETH.MSN = uint32(n + 1)
			if f.BTH.Opcode == wire.RCWriteOnly {
				b.frame(benchServer, answer)
				return n + 1
			}
			answer.BTH.Opcode, answer.AtomicAck = wire.RCAtomicAck, value
			value++
			b.frame(benchServer, answer)
		}
	}
	b.tb.Fatal("nothing was replaced")
	return 0
}

// atomics is a stream of FETCH_ADDs of client 1, and of the server's acknowledgements of the WRITEs
// that replace them.
func (b *bench) atomics(next int, p *swordbox.Program) stream {
	at, own, to := wire.PSN(0), wire.QPN(0x301), benchSwitch
	for _, m := range p.Report(b.now).Handlers {
		for _, s := range m.Shared {
			if at = s.NextPSN; s.OwnQPN != own && m.Mode == rules.Published {
				own, to = benchQP(1), 1
			}
		}
	}
	return func(n int) (int, *wire.Frame, *wire.Frame) {
		a := benchFrame(benchServer, to, own, wire.RCAck, at.Add(n))
		a.AETH.MSN = uint32(n)
		return 1, faa(next + n), a
	}
}

// plainAtomics is a stream of FETCH_ADDs of client 1 through plain forwarding.
func plainAtomics(n int) (int, *wire.Frame, *wire.Frame) {
	f := faa(n)
	a := benchFrame(benchServer, 1, benchQP(1), wire.RCAtomicAck, f.BTH.PSN)
	a.AtomicAck = uint64(n)
	return 1, f, a
}

// replaced returns how many atomics were replaced.
func replaced(p *swordbox.Program) (n uint64) {
	for _, g := range p.Counters(0) {
		for _, c := range g.Counters {
			if c.Name == "replaced" || c.Name == "as_write" {
				n += c.Value
			}
		}
	}
	return n
}
