package transport

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// The structured fuzzer plays the peer, the application and the clock of one queue pair. Bytes
// decide each step; most packets are ones that a peer might send in the present state, so that they
// pass the first checks, and the rest are such packets with one mistake. After each step the
// invariants are checked. The bytes come from the fuzzing engine, or from seeds in TestStructured.

// dice turns bytes into decisions.
type dice struct{ b []byte }

func (d *dice) roll() int {
	if len(d.b) == 0 {
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return int(v)
}

// under draws a number below n, which is at most 256.
func (d *dice) under(n int) int { return d.roll() % n }

// pick draws one of the values.
func pick[T any](d *dice, v ...T) T { return v[d.under(len(v))] }

const (
	fuzzRegion = 1024 // bytes that the peer may reach
	fuzzMTU    = 256
	fuzzOwn    = 4096 // bytes of the application's own
)

// play is one run of the structured fuzzer.
type play struct {
	t      testing.TB
	s      *side
	d      dice
	now    clock.Time
	around []byte        // the open region is in its middle
	before []wire.Packet // requests that were sent, for duplicates
	ah     testAH
	// The IDs of work requests grow; the last ones of each queue that were posted and completed.
	sendID, recvID     uint64 // posted last
	sendDone, recvDone uint64 // completed last
	steps              int
}

func playStructured(t testing.TB, of verbs.QPType, data []byte) {
	p := &play{t: t, d: dice{data}, around: make([]byte, 3*fuzzRegion), ah: 1}
	cfg := Config{QPN: 0x11, Type: of, Window: 1 + p.d.under(12), MaxSendWR: 16, MaxRecvWR: 8, AckEvery: 1 + p.d.under(5)}
	how := p.d.roll()
	cfg.CoalesceAcks, cfg.SignalAll = how&1 != 0, how&2 != 0
	p.s = newSide(t, "s", 1, fuzzOwn, cfg)
	if how&12 == 12 {
		shareReceives(t, p.s, 8)
	}
	if how&48 == 48 {
		p.s.env.Mem.SetTear(mem.SeededTear(uint64(how), 0.3, 20*time.Microsecond))
	}
	p.open()
	p.connect()
	for len(p.d.b) > 0 {
		p.steps++
		p.step()
		p.check()
	}
	zero := make([]byte, fuzzRegion)
	if !bytes.Equal(p.around[:fuzzRegion], zero) || !bytes.Equal(p.around[2*fuzzRegion:], zero) {
		t.Fatal("memory outside the region was written")
	}
}

// open registers the region for the peer.
func (p *play) open() {
	r, err := p.s.env.Mem.Reg(p.s.pd, p.around[fuzzRegion:2*fuzzRegion:2*fuzzRegion], allAccess)
	if err != nil {
		p.t.Fatal(err)
	}
	p.s.mem = r
}

// connect brings the queue pair to RTR, and mostly to RTS.
func (p *play) connect() {
	how := p.d.roll()
	access := allRemote
	if how&7 == 7 {
		access = verbs.RemoteWrite
	}
	init := verbs.ToInit{Access: access, QKey: testQKey}
	rtr := verbs.ToRTR{PathMTU: verbs.MTU256, RecvPSN: 0xfffff0, DestQPN: 1, MaxDestRdAtomic: 1 + how&3, MinRNRTimer: 3}
	rts := verbs.ToRTS{SendPSN: 0xfffff8, Timeout: uint8(10 * (how >> 3 & 1)), RetryCount: uint8(how >> 4 & 3), RNRRetry: uint8(how >> 4 & 7), MaxRdAtomic: 1 + how>>6&3}
	if how == 255 {
		rts.MaxRdAtomic = -1
	}
	for _, err := range []error{p.s.qp.ToInit(init), p.s.qp.ToRTR(p.now, rtr)} {
		if err != nil {
			p.t.Fatal(err)
		}
	}
	for range p.d.under(6) {
		p.postRecv()
	}
	if how&0xf0 != 0xf0 {
		if err := p.s.qp.ToRTS(p.now, rts); err != nil {
			p.t.Fatal(err)
		}
	}
}

// step makes one random step.
func (p *play) step() {
	s := p.s
	switch k := p.d.under(32); {
	case k < 10:
		p.deliver(p.request())
	case k < 12:
		p.deliver(p.mutate(p.request()))
	case k < 17:
		p.deliver(p.answer())
	case k < 18:
		p.deliver(p.mutate(p.answer()))
	case k < 23:
		p.postSend()
	case k < 25:
		p.postRecv()
	case k < 27:
		if at := s.qp.Deadline(); at != clock.Never {
			p.now = max(p.now, at)
		}
		s.qp.Tick(p.now, &s.out)
	case k == 27:
		p.now = p.now.Add(time.Duration(p.d.roll()) * 10 * time.Microsecond)
		s.qp.Tick(p.now, &s.out)
	case k == 28:
		s.qp.FlushAcks(p.now, &s.out)
	case k == 29:
		if len(p.before) > 0 {
			p.deliver(p.before[p.d.under(min(len(p.before), 256))])
		}
	case k == 30:
		p.memory()
	default:
		p.lifecycle()
	}
}

// deliver hands a packet to the queue pair, after it was encoded and decoded as on the wire.
func (p *play) deliver(pkt wire.Packet) {
	var got wire.Packet
	if wire.ParsePacket(pkt.AppendTo(nil), &got) != nil {
		return // a reserved opcode of no layout
	}
	if got.BTH.Opcode.Info().Flags&wire.OpRequest != 0 && len(p.before) < 256 {
		p.before = append(p.before, got)
	}
	if p.s.qp.Config().Type == verbs.UD {
		p.s.qp.HandleDatagram(p.now, &got, make([]byte, pick(&p.d, 20, 40, 0)), &p.s.out)
		return
	}
	p.s.qp.Handle(p.now, &got, &p.s.out)
}

// postSend posts an operation, which may name memory that does not exist.
func (p *play) postSend() {
	s := p.s
	op := pick(&p.d, verbs.OpSend, verbs.OpSendImm, verbs.OpSendInv, verbs.OpWrite, verbs.OpWriteImm, verbs.OpRead, verbs.OpRead,
		verbs.OpCmpSwap, verbs.OpFetchAdd, verbs.OpLocalInv, verbs.OpBindMW, verbs.OpRegMR,
		verbs.OpMaskedCmpSwap, verbs.OpMaskedFetchAdd, verbs.OpAtomicWrite, verbs.OpFlush, verbs.WROpcode(200))
	how := p.d.roll()
	n := pick(&p.d, 0, 1, 8, 100, 256, 257, 600, 1000)
	wr := verbs.SendWR{
		ID: p.sendID + 1, Op: op, RemoteAddr: uint64(how) * 8, RKey: uint32(how), AH: p.ah, RemoteQPN: 7, RemoteQKey: uint32(how) << 24,
		SGL: []verbs.SGE{s.sge(0, n)}, CompareAdd: 1, Swap: 2, Imm: 3, InvRKey: uint32(how),
		Flush: verbs.Flush{Length: uint32(n), Region: how&64 != 0, Global: how&3 != 0, Persistent: how&12 != 0},
	}
	if int(op) < len(sendOps) && atomics>>op&1 != 0 {
		wr.SGL[0] = s.sge(8, 8)
	}
	for bit, f := range map[int]verbs.SendFlags{1: verbs.Signalled, 2: verbs.Solicited} {
		if how&bit != 0 {
			wr.Flags |= f
		}
	}
	if how&0x1c == 0x1c {
		wr.Flags |= verbs.Fence
	}
	switch how >> 5 {
	case 0:
		wr.SGL = append(wr.SGL, s.sge(16, 16)) // atomics answer with 8 bytes
	case 1:
		wr.Flags |= verbs.Inline
		wr.Data, wr.SGL = make([]byte, n), nil
	case 2:
		wr.SGL[0].LKey ^= 1
	default:
		if isBare(op) {
			wr.SGL = nil
		}
	}
	if op == verbs.OpRegMR || op == verbs.OpLocalInv {
		r, err := s.env.Mem.AllocFast(s.pd, make([]byte, 64))
		if err != nil {
			return // the limit of objects is reached
		}
		wr.RKey, wr.InvRKey, wr.SGL = r.RKey(), r.RKey(), nil
		if op == verbs.OpRegMR {
			wr.SGL = []verbs.SGE{{Addr: r.Base(), Length: 64, LKey: r.LKey()}}
		}
	}
	if s.qp.PostSend(p.now, &wr, &s.out) == nil {
		p.sendID++
	}
}

func (p *play) postRecv() {
	sgl := []verbs.SGE{p.s.sge(0, pick(&p.d, 0, 64, 256, 900))}
	if p.d.under(16) == 0 {
		sgl[0].LKey ^= 1
	}
	if p.s.postRecv(&verbs.RecvWR{ID: p.recvID + 1, SGL: append(sgl, p.s.sge(0, 64))}) == nil {
		p.recvID++
	}
}

// memory deregisters the region for the peer and registers another one.
func (p *play) memory() {
	_ = p.s.env.Mem.Dereg(p.s.mem) // refused while windows are bound to it
	p.open()
}

// lifecycle changes the state of the queue pair.
func (p *play) lifecycle() {
	s := p.s
	switch p.d.under(8) {
	case 0, 1, 2:
		_ = s.qp.ToSQD(p.now, &s.out)
	case 3, 4:
		_ = s.qp.ResumeRTS(p.now, &s.out)
	case 5:
		must(p.t, s.qp.ToError(p.now, &s.out))
	default:
		if st := s.qp.State(); st == verbs.StateError || st == verbs.StateSQE || p.d.under(8) == 0 {
			p.check()
			must(p.t, s.qp.ToReset())
			p.sendDone, p.recvDone = p.sendID, p.recvID
			if srq := s.qp.core.cfg.SRQ; srq != nil {
				p.recvDone -= uint64(srq.rq.len())
			}
			p.connect()
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// structuredServices are the services with a structured fuzzer.
var structuredServices = []verbs.QPType{verbs.RC, verbs.UC, verbs.UD}

// structuredSeeds is the number of seeds of each service in TestStructured.
const structuredSeeds = 600

// For any actions of the peer and the application at any time, the invariants hold. This runs the
// fuzz target with seeds for one or two seconds. `-run TestStructured/RC -coverprofile` shows what
// the seeds reach: at least 95 % of the statements of each file of requester, completer and
// responder.
func TestStructured(t *testing.T) {
	n := uint64(structuredSeeds)
	if testing.Short() || raceEnabled {
		n /= 10
	}
	if *seedsFlag != 0 {
		n = *seedsFlag
	}
	for _, of := range structuredServices {
		t.Run(fmt.Sprint(of), func(t *testing.T) {
			for seed := uint64(1); seed <= n; seed++ {
				if *seedFlag != 0 && seed != *seedFlag {
					continue
				}
				playStructured(t, of, structuredBytes(seed))
				if t.Failed() {
					t.Fatalf("replay: go test ./softrnic/transport -run TestStructured/%v -seed %d", of, seed)
				}
			}
		})
	}
}

// structuredBytes returns the decisions of a seed.
func structuredBytes(seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 77))
	b := make([]byte, 100+r.IntN(900))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// FuzzStructured is the structured fuzzer; the first byte is the service.
func FuzzStructured(f *testing.F) {
	for seed := range uint64(12) {
		f.Add(append([]byte{byte(seed)}, structuredBytes(seed)...))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 0 {
			playStructured(t, structuredServices[int(data[0])%len(structuredServices)], data[1:])
		}
	})
}
