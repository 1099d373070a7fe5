package transport

import (
	"bytes"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// The states of queue pairs that the fuzzer uses.
var fuzzStates = []verbs.QPState{
	verbs.StateReset, verbs.StateInit, verbs.StateRTR, verbs.StateRTS, verbs.StateSQD, verbs.StateError,
}

// fuzzSide is a queue pair with work in flight and one small region for the peer, in the middle of
// memory that the peer must not reach.
func fuzzSide(t testing.TB, of verbs.QPType, state verbs.QPState) (s *side, around []byte) {
	s = newSide(t, "s", 1, 4096, Config{QPN: 0x11, Type: of, Window: 8, MaxSendWR: 16})
	around = make([]byte, 3*256)
	open, err := s.env.Mem.Reg(s.pd, around[256:512:512], allAccess)
	if err != nil {
		t.Fatal(err)
	}
	s.mem = open
	if state >= verbs.StateRTR {
		l := defaultLink
		for _, err := range []error{
			s.qp.ToInit(verbs.ToInit{Access: allRemote}),
			s.qp.ToRTR(0, verbs.ToRTR{PathMTU: verbs.MTU256, RecvPSN: 0x10, DestQPN: 1, MaxDestRdAtomic: 2}),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		recvOf(t, s, 200)
		recvOf(t, s, 256)
		if state >= verbs.StateRTS {
			l.rts.SendPSN = 0x20
			if err := s.qp.ToRTS(0, l.rts); err != nil {
				t.Fatal(err)
			}
			for i, op := range []verbs.WROpcode{verbs.OpSend, verbs.OpRead, verbs.OpFetchAdd, verbs.OpWrite, verbs.OpRead} {
				if s.qp.core.svc.ops&opSet(op) == 0 {
					continue
				}
				n := 8
				if op != verbs.OpFetchAdd {
					n = 100 * (i + 1) % 256
				}
				post(t, s, verbs.SendWR{Op: op, SGL: []verbs.SGE{s.sge(0, n)}, RemoteAddr: 0x1000, RKey: 5, AH: testAH(1)})
			}
		}
	}
	if state == verbs.StateInit {
		bringTo(t, s, state)
	}
	if state == verbs.StateSQE {
		if err := failASend(s); err != nil {
			t.Fatal(err)
		}
	}
	if state == verbs.StateSQD || state == verbs.StateError {
		f := s.qp.ToSQD
		if state == verbs.StateError {
			f = s.qp.ToError
		}
		if err := f(0, &s.out); err != nil {
			t.Fatal(err)
		}
	}
	s.file()
	s.out.Reset()
	return s, around
}

// FuzzHandle sends a queue pair in any state packets of an adversary: it never panics, never sends
// more than its window in a step, and accesses no memory outside the open region. The input is a
// state, then packets, each with a length byte before it. Some keys and addresses are replaced by
// valid ones, so that some packets pass the first checks.
func FuzzHandle(f *testing.F) {
	for st := range fuzzStates {
		seed := []byte{byte(st)}
		for op := range 0x20 { // also reserved ones, because the engine does not drop them
			p := wire.Packet{BTH: wire.BTH{Opcode: wire.Opcode(op), PSN: 0x10, AckReq: true}, Payload: []byte("12345678")}
			p.RETH = wire.RETH{Length: 8}
			b := p.AppendTo(nil)
			seed = append(append(seed, byte(len(b)), 1), b...)
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) { fuzzHandle(t, verbs.RC, data) })
}

// FuzzHandleUC is FuzzHandle for an unreliable connection, with the opcodes of the seeds and other
// top bits.
func FuzzHandleUC(f *testing.F) {
	for st := range len(fuzzStates) + 1 {
		seed := []byte{byte(st)}
		for _, op := range []wire.Opcode{wire.UCSendFirst, wire.UCSendLast, wire.UCSendOnlyImm, wire.UCWriteFirst, wire.UCWriteMiddle, wire.UCWriteLastImm, wire.UCWriteOnly} {
			p := wire.Packet{BTH: wire.BTH{Opcode: op, PSN: 0x10}, RETH: wire.RETH{Length: 300}, Payload: []byte("12345678")}
			b := p.AppendTo(nil)
			seed = append(append(seed, byte(len(b)), 11), b...)
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) { fuzzHandle(t, verbs.UC, data) })
}

// FuzzHandleUD is FuzzHandle for datagrams; the IP header has any length.
func FuzzHandleUD(f *testing.F) {
	for st := range len(fuzzStates) + 1 {
		seed := []byte{byte(st)}
		for _, op := range []wire.Opcode{wire.UDSendOnly, wire.UDSendOnlyImm, 0x66} {
			p := wire.Packet{BTH: wire.BTH{Opcode: op}, Payload: []byte("12345678")}
			b := p.AppendTo(nil)
			seed = append(append(seed, byte(len(b)), 20), b...)
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) { fuzzHandle(t, verbs.UD, data) })
}

func fuzzHandle(t *testing.T, of verbs.QPType, data []byte) {
	if len(data) == 0 {
		return
	}
	states := fuzzStates
	if of != verbs.RC {
		states = append(states[:len(states):len(states)], verbs.StateSQE)
	}
	s, around := fuzzSide(t, of, states[int(data[0])%len(states)])
	now := clock.Time(0)
	for data = data[1:]; len(data) > 2; {
		n, how := min(int(data[0]), len(data)-2), data[1]
		var p wire.Packet
		err := wire.ParsePacket(data[2:2+n], &p)
		data = data[2+n:]
		if err != nil {
			continue
		}
		fit(s, &p, how)
		if of == verbs.UD {
			s.qp.HandleDatagram(now, &p, make([]byte, how), &s.out)
		} else {
			s.qp.Handle(now, &p, &s.out)
		}
		checkStep(t, s)
		if how&64 != 0 {
			now = now.Add(time.Duration(how) * time.Millisecond)
			s.qp.Tick(now, &s.out)
			checkStep(t, s)
		}
	}
	zero := make([]byte, 256)
	if !bytes.Equal(around[:256], zero) || !bytes.Equal(around[512:], zero) {
		t.Fatal("memory outside the region was written")
	}
}

// fit replaces fields of a packet by valid values, chosen by the bits of how.
func fit(s *side, p *wire.Packet, how byte) {
	if how&1 != 0 {
		p.RETH.RKey, p.AtomicETH.RKey = s.mem.RKey(), s.mem.RKey()
		p.RETH.VA, p.AtomicETH.VA = s.mem.Base()+p.RETH.VA%256, s.mem.Base()+p.AtomicETH.VA%256
	}
	if how&2 != 0 {
		p.BTH.PSN = s.qp.Query().RecvPSN
	}
	if how&4 != 0 && p.BTH.Opcode.Is(wire.OpResponse) {
		p.BTH.PSN = s.qp.req.una
	}
	if how&8 != 0 {
		p.RETH.Length = uint32(len(p.Payload))
	}
}

func checkStep(t *testing.T, s *side) {
	if n := len(s.out.Tx); n > 3*s.qp.core.cfg.Window+maxOwed(2) {
		t.Fatalf("%d packets in one step", n)
	}
	for i := range s.out.Tx {
		if n := len(s.out.Tx[i].Packet.Payload); n > 256 {
			t.Fatalf("%d bytes of payload", n)
		}
	}
	if q := &s.qp.req; q.window.flight < 0 || q.window.flight >= s.qp.core.cfg.Window+maxOutstandingPSNs || q.window.size > s.qp.core.cfg.Window || q.sender.reads < 0 {
		t.Fatalf("flight %d, READs and atomics out %d", q.window.flight, q.sender.reads)
	}
	s.file()
	s.out.Reset()
}
