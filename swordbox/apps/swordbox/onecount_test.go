package swordbox_test

import (
	"flag"
	"math/rand/v2"
	"slices"
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
	"github.com/rdmalab/rdmalab/swordbox/hotwords"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

var (
	histories    = flag.Int("histories", 50, "how many random histories TestEachRequestCountsOnce plays")
	firstHistory = flag.Uint64("history", 1, "the first of them")
)

// idShift: the address of request n is n+1 shifted by it, so that the rest of a READ has the number of
// the READ.
const idShift = 32

// onlooker is an observer that counts how often it is shown each request.
type onlooker struct {
	*hotwords.Counter
	kind handler.Kind
	seen map[uint64]int
}

func (w *onlooker) Kind() *handler.Kind { return &w.kind }

func (w *onlooker) Observe(_ *pipeline.Ctx, _ *rules.Rule, t handler.Target) {
	w.seen[t.VA>>idShift-1]++
}

// request is a request of the model: the PSNs from `from` on, as many as it has packets, or a READ has
// answers.
type request struct {
	id       int
	op       wire.Opcode // RCReadRequest, RCWriteOnly (with all its packets) or RCFetchAdd
	from     wire.PSN
	span     int
	executed int
}

func (r *request) end() wire.PSN { return r.from.Add(r.span) }

// arrival is a packet on a link.
type arrival struct {
	at   clock.Time
	to   int // which end of which link: see history.deliver
	data []byte
}

// Ends of links.
const (
	atSwitchUp = iota // from the client
	atServer
	atSwitchDown // from the server
	atClient
)

// history is a client and a server with the switch between them, on links that lose, double, damage
// and delay packets.
type history struct {
	t    *testing.T
	b    *bench
	rng  *rand.Rand
	qpn  wire.QPN // of the server; that of the client is one less
	wait []arrival
	now  clock.Time

	all            []*request
	sent           int      // how many of them have been sent once
	una            wire.PSN // all before it is answered
	retry, quiet   clock.Time
	window         int
	lost, doubled  float64
	damaged, jumps float64
	spread         int // microseconds

	expected wire.PSN // of the server
	nakked   bool
}

// put puts a packet on a link.
func (h *history) put(to int, data []byte) {
	copies := 1
	if h.rng.Float64() < h.doubled {
		copies = 2
	}
	for range copies {
		if h.rng.Float64() < h.lost {
			continue
		}
		d := slices.Clone(data)
		if h.rng.Float64() < h.damaged {
			bit := 14*8 + h.rng.IntN((len(d)-14)*8)
			d[bit/8] ^= 0x80 >> (bit % 8)
		}
		delay := 1 + h.rng.IntN(3)
		if h.rng.Float64() < h.jumps {
			delay += h.rng.IntN(h.spread)
		}
		at := h.now.Add(time.Duration(delay) * time.Microsecond)
		i, _ := slices.BinarySearchFunc(h.wait, at, func(a arrival, at clock.Time) int {
			if a.at <= at {
				return -1
			}
			return 1
		})
		h.wait = slices.Insert(h.wait, i, arrival{at, to, d})
	}
}

// packet sends the packet of a request with a PSN.
func (h *history) packet(r *request, psn wire.PSN) {
	k := int(wire.Diff(psn, r.from))
	f := benchFrame(1, benchServer, h.qpn, r.op, psn)
	va := uint64(r.id+1) << idShift
	switch r.op {
	case wire.RCReadRequest:
		f.RETH = wire.RETH{VA: va + uint64(k*benchMTU), Length: uint32((r.span - k) * benchMTU), RKey: 5}
	case wire.RCFetchAdd:
		f.AtomicETH = wire.AtomicETH{VA: va, RKey: 5, SwapOrAdd: 1}
	default:
		f.Payload = make([]byte, 8) // the switch knows the path MTU
		switch {
		case r.span == 1:
		case k == 0:
			f.BTH.Opcode = wire.RCWriteFirst
		case k == r.span-1:
			f.BTH.Opcode = wire.RCWriteLast
		default:
			f.BTH.Opcode = wire.RCWriteMiddle
		}
		if k == 0 {
			f.RETH = wire.RETH{VA: va, Length: uint32(r.span * benchMTU), RKey: 5}
		}
	}
	h.put(atSwitchUp, f.AppendTo(nil))
}

// send sends a request from a PSN on.
func (h *history) send(r *request, psn wire.PSN) {
	if wire.Diff(psn, r.from) < 0 {
		psn = r.from
	}
	if r.op == wire.RCReadRequest {
		h.packet(r, psn)
		return
	}
	for ; psn != r.end(); psn = psn.Next() {
		h.packet(r, psn)
	}
}

// again sends all requests again that are not answered, but not twice within a round trip.
func (h *history) again() {
	if h.now < h.quiet {
		return
	}
	h.quiet = h.now.Add(time.Duration(h.spread) * time.Microsecond / 2)
	for _, r := range h.all[:h.sent] {
		if wire.Diff(r.end(), h.una) > 0 {
			h.send(r, h.una)
		}
	}
	h.retry = h.now.Add(time.Duration(h.spread)*time.Microsecond + 50*time.Microsecond)
}

// of returns the request with a PSN.
func (h *history) of(psn wire.PSN) *request {
	for _, r := range h.all {
		if wire.Diff(psn, r.from) >= 0 && wire.Diff(psn, r.end()) < 0 {
			return r
		}
	}
	return nil
}

// server handles a packet like a responder.
func (h *history) server(f *wire.Frame) {
	psn := f.BTH.PSN
	r := h.of(psn)
	switch d := wire.Diff(psn, h.expected); {
	case r == nil:
		return
	case d > 0:
		if !h.nakked {
			h.nakked = true
			h.reply(wire.RCAck, h.expected, wire.NakPSNSequence)
		}
		return
	case d == 0:
		h.nakked = false
		if psn == r.from {
			r.executed++
		}
		if h.expected = h.expected.Next(); r.op == wire.RCReadRequest {
			h.expected = r.end()
		}
	}
	switch {
	case r.op == wire.RCReadRequest:
		for p := psn; p != r.end(); p = p.Next() {
			h.reply(wire.RCReadResponseOnly, p, wire.AckNoCredits)
		}
	case r.op == wire.RCFetchAdd:
		h.reply(wire.RCAtomicAck, psn, wire.AckNoCredits)
	case wire.Diff(psn, h.expected) < -1:
		h.reply(wire.RCAck, h.expected.Add(-1), wire.AckNoCredits)
	case h.rng.IntN(3) > 0 || psn.Next() == r.end():
		h.reply(wire.RCAck, psn, wire.AckNoCredits)
	}
}

func (h *history) reply(op wire.Opcode, psn wire.PSN, s wire.Syndrome) {
	f := benchFrame(benchServer, 1, h.qpn-1, op, psn)
	f.AETH.Syndrome = s
	if op == wire.RCReadResponseOnly {
		f.Payload = make([]byte, 8)
	}
	h.put(atSwitchDown, f.AppendTo(nil))
}

// client handles an answer like a requester.
func (h *history) client(f *wire.Frame) {
	psn := f.BTH.PSN
	end := psn.Next()
	nak := f.AETH.Syndrome == wire.NakPSNSequence && f.BTH.Opcode == wire.RCAck
	if nak {
		end = psn
	}
	before := h.una
	for wire.Diff(end, h.una) > 0 {
		r := h.of(h.una)
		if r == nil {
			break
		}
		if r.op != wire.RCWriteOnly && (nak || h.una != psn || f.BTH.Opcode == wire.RCAck) {
			h.again() // the answer to it is lost
			return
		}
		h.una = h.una.Next()
	}
	if h.una != before {
		h.retry = h.now.Add(time.Duration(h.spread)*time.Microsecond + 50*time.Microsecond)
	}
	if nak {
		h.again()
	}
}

// step handles the next arrival or timeout. It returns false when all is answered.
func (h *history) step() bool {
	last := h.all[len(h.all)-1].end()
	for h.sent < len(h.all) && int(wire.Diff(h.all[h.sent].from, h.una)) < h.window {
		h.send(h.all[h.sent], h.all[h.sent].from)
		h.sent++
	}
	if h.una == last {
		return false
	}
	if len(h.wait) == 0 || h.wait[0].at > h.retry {
		h.now = h.retry
		h.again()
		return true
	}
	a := h.wait[0]
	h.wait = h.wait[1:]
	h.now = a.at
	switch a.to {
	case atSwitchUp, atSwitchDown:
		in, out := 1, atServer
		if a.to == atSwitchDown {
			in, out = benchServer, atClient
		}
		h.b.out.Reset()
		h.b.sw.Frame(h.now, in, packetio.Frame{Data: a.data}, &h.b.out)
		for _, f := range h.b.out.Frames {
			if f.Port != in {
				h.put(out, f.Data)
			}
		}
	default:
		var f wire.Frame
		if wire.ParseFrame(a.data, &f) != nil || !wire.CheckICRC(a.data) {
			return true
		}
		if a.to == atServer {
			h.server(&f)
		} else {
			h.client(&f)
		}
	}
	return true
}

// newHistory draws a history.
func newHistory(t *testing.T, b *bench, seed uint64, number int) *history {
	rng := rand.New(rand.NewPCG(seed, 13))
	h := &history{t: t, b: b, rng: rng, qpn: wire.QPN(0x1000 + 2*number), now: b.now}
	share := func(most float64) float64 { return most * float64(rng.IntN(4)) / 3 }
	h.lost, h.doubled, h.damaged, h.jumps = share(0.08), share(0.08), share(0.05), share(0.5)
	h.spread = 1 << (1 + rng.IntN(8))
	h.window = 1 + rng.IntN(40)
	if rng.IntN(4) == 0 {
		h.window, h.lost, h.damaged = 1+rng.IntN(400), h.lost/8, h.damaged/8
	}
	first := wire.PSN(rng.Uint32() & 0xffffff)
	if rng.IntN(2) == 0 {
		first = wire.PSN(0xffffff - rng.IntN(100))
	}
	h.una, h.expected = first, first
	psn := first
	for id := range 1 + rng.IntN(24) {
		r := &request{id: id, op: []wire.Opcode{wire.RCReadRequest, wire.RCWriteOnly, wire.RCFetchAdd}[rng.IntN(3)], from: psn, span: 1}
		if r.op != wire.RCFetchAdd && rng.IntN(2) == 0 {
			r.span = 1 + rng.IntN(1<<(1+rng.IntN(7)))
			if r.op == wire.RCWriteOnly {
				r.span = min(r.span, 6)
			}
		}
		psn = r.end()
		h.all = append(h.all, r)
	}
	id := mad.CommID(0x1000 + number)
	req := benchFrame(1, benchServer, 1, wire.UDSendOnly, 0)
	req.Payload = mad.Append(nil, 1, &mad.REQ{
		LocalID: id, QPN: h.qpn - 1, PSN: 7, MTU: 3,
		Primary: mad.Path{LocalGID: benchIP(1).As16(), RemoteGID: benchIP(benchServer).As16()},
	})
	b.frame(1, req)
	rep := benchFrame(benchServer, 1, 1, wire.UDSendOnly, 0)
	rep.Payload = mad.Append(nil, 1, &mad.REP{LocalID: id, RemoteID: id, QPN: h.qpn, PSN: first})
	b.frame(benchServer, rep)
	h.now = b.now
	h.retry = h.now.Add(time.Millisecond)
	return h
}

// On links that lose, double, damage and delay packets, before and behind the switch, each request that
// the server executes is counted once, and none is counted twice.
func TestEachRequestCountsOnce(t *testing.T) {
	var b *bench
	var w *onlooker
	const perBench = 1000
	for i := range *histories {
		if i%perBench == 0 {
			w = &onlooker{Counter: hotwords.New(), kind: hotwords.Kind}
			p := swordbox.New(swordbox.Config{Own: own(t), Handlers: []handler.Handler{w}, Track: conntrack.Config{Settle: -1}})
			counted(t, p)
			b = newBench(t, p)
		}
		seed := *firstHistory + uint64(i)
		w.seen = make(map[uint64]int)
		h := newHistory(t, b, seed, i%perBench)
		steps := 0
		for h.step() {
			if steps++; steps > 200_000 {
				t.Fatalf("history %d does not end", seed)
			}
		}
		b.now = h.now.Add(time.Millisecond)
		for _, r := range h.all {
			if n := w.seen[uint64(r.id)]; n != 1 || r.executed != 1 {
				t.Errorf("history %d (%d requests, window %d): request %d, %v of %d PSNs, is executed %d times and counted %d times",
					seed, len(h.all), h.window, r.id, r.op, r.span, r.executed, n)
			}
		}
	}
}
