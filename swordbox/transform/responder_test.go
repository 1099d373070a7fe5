package transform_test

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// server is a real NIC with a word, and the path to a queue pair of it.
type server struct {
	t    *testing.T
	nic  *engine.Engine
	word []byte
	va   uint64
	rkey uint32
	path transform.Path
	psn  wire.PSN
	now  clock.Time
}

const startPSN = 0xfffffe // so that PSNs wrap soon

func newServer(t *testing.T) *server {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	s := &server{t: t, psn: startPSN, word: make([]byte, 64)}
	v4, _ := ends(1, 2)
	cfg := engine.Config{
		Name: "server", MAC: serverMAC, Rand: rand.New(rand.NewPCG(1, 2)), GIDs: []verbs.GID{verbs.GIDOf(netip.AddrFrom4(v4.Dst))},
		Resolve: func(netip.Addr) (wire.MAC, bool) { return clientMAC, true },
	}
	nic, err := engine.New(cfg)
	must(err)
	s.nic = nic
	pd, err := nic.AllocPD()
	must(err)
	cq, err := nic.CreateCQ(16)
	must(err)
	const access = verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic
	mr, err := nic.RegMR(pd, s.word, verbs.LocalWrite|access)
	must(err)
	region, err := mr.Region()
	must(err)
	s.va, s.rkey = region.Base(), region.RKey()
	qp, err := nic.CreateQP(pd, cq, cq, verbs.QPInit{})
	must(err)
	must(qp.ToInit(verbs.ToInit{Access: access}))
	must(qp.ToRTR(0, verbs.ToRTR{DestQPN: 0x2a, DestGID: verbs.GIDOf(netip.AddrFrom4(v4.Src)), RecvPSN: startPSN, PathMTU: verbs.MTU1024}))
	s.path = transform.Path{Eth: wire.Ethernet{Dst: serverMAC, Src: clientMAC}, IPv4: v4, PKey: wire.DefaultPKey, SrcPort: 0xc000, DestQP: qp.Num()}
	return s
}

// atomic returns a request of a client.
func (s *server) atomic(op wire.Opcode, compare, swapOrAdd uint64) wire.Frame {
	var f wire.Frame
	s.path.EmptyWrite(&f, s.psn, 0, 0)
	f.BTH.Opcode = op
	f.AtomicETH = wire.AtomicETH{VA: s.va, RKey: s.rkey, SwapOrAdd: swapOrAdd, Compare: compare}
	return f
}

// ask sends a request and returns its answer.
func (s *server) ask(f *wire.Frame) (answer wire.Frame) {
	s.t.Helper()
	var out packetio.Batch
	s.now += 1000
	s.nic.Frame(s.now, 0, packetio.Frame{Data: f.AppendTo(nil)}, &out)
	s.nic.EndBatch(s.now, &out)
	if len(out.Frames) != 1 {
		s.t.Fatalf("%v: %d answers", f.BTH.Opcode, len(out.Frames))
	}
	if err := wire.ParseFrame(out.Frames[0].Data, &answer); err != nil || answer.BTH.PSN != s.psn || answer.BTH.DestQP != 0x2a {
		s.t.Fatalf("%v: answer %+v, %v", f.BTH.Opcode, answer.BTH, err)
	}
	if !answer.AETH.Syndrome.IsAck() {
		s.t.Fatalf("%v: %v", f.BTH.Opcode, answer.AETH.Syndrome)
	}
	s.psn = s.psn.Next()
	return answer
}

// A real responder leaves the same value after an atomic and after the WRITE with which the switch
// replaces it, and each reads the value that the other wrote.
func TestByteOrder(t *testing.T) {
	const tag, second = 0x0102030405060708, 0xfedcba9876543210
	s := newServer(t)

	cas := s.atomic(wire.RCCmpSwap, 0, tag)
	transform.ToWrite(&cas, tag, new([transform.WordLen]byte))
	if a := s.ask(&cas); a.BTH.Opcode != wire.RCAck {
		t.Errorf("a replaced CAS is answered with %v", a.BTH.Opcode)
	}
	if got := binary.LittleEndian.Uint64(s.word); got != tag {
		t.Errorf("the server's memory holds %#x, want %#x", got, uint64(tag))
	}

	cas = s.atomic(wire.RCCmpSwap, tag, second)
	if a := s.ask(&cas); a.AtomicAck != tag {
		t.Errorf("a CAS finds %#x, want %#x: the word is mirrored", a.AtomicAck, uint64(tag))
	}
	cas = s.atomic(wire.RCCmpSwap, second, 7)
	transform.ToEmptyWrite(&cas)
	s.ask(&cas)
	faa := s.atomic(wire.RCFetchAdd, 0, 1)
	if a := s.ask(&faa); a.AtomicAck != second {
		t.Errorf("an FAA behind an empty WRITE finds %#x, want %#x", a.AtomicAck, uint64(second))
	}

	// PieceOf computes the value after a client's WRITE.
	var w wire.Frame
	s.path.EmptyWrite(&w, s.psn, s.va, s.rkey)
	w.Payload = []byte{1, 2, 3, 4, 5, 6, 7, 8}
	w.RETH.Length = 8
	s.ask(&w)
	value := binary.LittleEndian.Uint64(w.Payload)
	if p := transform.PieceOf(&w, s.va); !p.Whole() || p.Apply(0) != value {
		t.Errorf("PieceOf is %x, want the value %#x", p, value)
	}
	s.path.EmptyWrite(&w, s.psn, s.va+3, s.rkey)
	w.Payload = []byte{0xaa, 0xbb, 0xcc}
	w.RETH.Length = 3
	s.ask(&w)
	value = transform.PieceOf(&w, s.va).Apply(value)
	cas = s.atomic(wire.RCCmpSwap, value, 0)
	if a := s.ask(&cas); a.AtomicAck != value || binary.LittleEndian.Uint64(s.word) != 0 {
		t.Errorf("after the WRITEs a CAS finds %#x, want %#x", a.AtomicAck, value)
	}
}

// A WRITE of no bytes succeeds under any R_Key (IBTA C9-88), so it can take any PSN.
func TestEmptyWriteNeedsNoKey(t *testing.T) {
	s := newServer(t)
	var f wire.Frame
	s.path.EmptyWrite(&f, s.psn, 0xdead, 0xbad)
	if a := s.ask(&f); a.AETH.MSN != 1 {
		t.Errorf("MSN %d, want 1", a.AETH.MSN)
	}
}

func TestPieceOf(t *testing.T) {
	f := wire.Frame{}
	f.BTH.Opcode = wire.RCWriteOnly
	f.RETH.VA = 0x1000
	f.Payload = []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
	for _, tc := range []struct{ va, bits, mask uint64 }{
		{0x1000, 0x0807060504030201, ^uint64(0)},
		{0x1004, 0x0c0b0a0908070605, ^uint64(0)},
		{0x1008, 0x0c0b0a09, 0xffffffff},
		{0xffc, 0x04030201_00000000, 0xffffffff_00000000},
		{0x1010, 0, 0},
		{0xff8, 0, 0},
		{^uint64(7), 0, 0},
	} {
		p := transform.PieceOf(&f, tc.va)
		if p.Bits != tc.bits || p.Mask != tc.mask || p.Whole() != (tc.mask == ^uint64(0)) {
			t.Errorf("%#x: %#x of %#x, want %#x of %#x", tc.va, p.Bits, p.Mask, tc.bits, tc.mask)
		}
	}
	f.RETH.VA = ^uint64(0) - 3 // the end of the address space
	if p := transform.PieceOf(&f, ^uint64(7)); p.Mask != 0xffffffff_00000000 {
		t.Errorf("at the end: %#x", p.Mask)
	}
}
