package transform_test

import (
	"bytes"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// PathOf takes a path from a packet, without a congestion mark, and Apply puts other packets on it.
func TestPathOf(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		want := *tagged(shared(v6))
		var f wire.Frame
		want.ACK(&f, 9, 9)
		f.IPv4.ID, f.IPv4.TTL, f.IPv6.HopLimit = 77, 3, 3
		if v6 {
			f.IPv6.TrafficClass, want.IPv6.TrafficClass = 0x68|3, 0x68|2
		} else {
			f.IPv4.TOS, want.IPv4.TOS = 0x68|3, 0x68|2
		}
		p := transform.PathOf(&f)
		var got, expect wire.Frame
		p.ACK(&got, 5, 6)
		want.ACK(&expect, 5, 6)
		if b := got.AppendTo(nil); !bytes.Equal(b, expect.AppendTo(nil)) {
			t.Errorf("v6 %t: %x, want %x", v6, b, expect.AppendTo(nil))
		}
		back := p.Back(0x2a)
		if back.DestQP != 0x2a || back.Eth.Dst != p.Eth.Src || back.Eth.Src != p.Eth.Dst || back.IPv4.Src != p.IPv4.Dst || back.IPv6.Dst != p.IPv6.Src || !back.Eth.Tagged {
			t.Errorf("v6 %t: back %+v of %+v", v6, back, p)
		}
	}
}

// A packet keeps its DSCP and ECN on a path, even if the path has the other IP version.
func TestApplyKeepsTheClass(t *testing.T) {
	for _, to := range []bool{false, true} {
		var f wire.Frame
		from := shared(!to)
		from.IPv4.TOS, from.IPv6.TrafficClass = 0xa3, 0xa3
		from.ACK(&f, 1, 1)
		shared(to).Apply(&f, 1)
		if got := f.IPv4.TOS | f.IPv6.TrafficClass; got != 0xa3 || f.V6 != to {
			t.Errorf("to v6 %t: class %#x", to, got)
		}
		independent(t, f.AppendTo(nil))
	}
}

// Consecutive answers of the same length leave the switch so that the link can send them as one
// super-frame, across the wrap of PSNs: answers that the switch makes, and those that it moves.
func TestAnswersMerge(t *testing.T) {
	const n = 8
	for _, v6 := range []bool{false, true} {
		to := client(v6)
		for name, answer := range map[string]func(f *wire.Frame, psn wire.PSN){
			"ACK":        func(f *wire.Frame, psn wire.PSN) { to.ACK(f, psn, 1) },
			"ATOMIC ACK": func(f *wire.Frame, psn wire.PSN) { to.AtomicACK(f, psn, 1, 5) },
			"READ": func(f *wire.Frame, psn wire.PSN) {
				*f = wire.Frame{Packet: wire.Packet{BTH: wire.BTH{Opcode: wire.RCReadResponseOnly}, Payload: make([]byte, 8)}}
				transform.Response(f, to, psn, 1)
			},
		} {
			var frames []packetio.Frame
			for i := range n {
				var f wire.Frame
				answer(&f, wire.PSN(0xffffff-n/2).Add(i))
				frames = append(frames, packetio.Frame{Data: f.AppendTo(nil)})
			}
			if got := packetio.FirstRun(frames, 4096).Frames; got != n {
				t.Errorf("%s, IPv6 %v: %d of %d leave as one", name, v6, got, n)
			}
		}
	}
}

func TestTarget(t *testing.T) {
	f := wire.Frame{}
	f.RETH, f.AtomicETH = wire.RETH{VA: 1, RKey: 2}, wire.AtomicETH{VA: 3, RKey: 4}
	for op, want := range map[wire.Opcode][2]uint64{
		wire.RCCmpSwap: {3, 4}, wire.RCFetchAdd: {3, 4}, wire.RCWriteOnly: {1, 2}, wire.RCReadRequest: {1, 2}, wire.RCSendOnly: {},
	} {
		f.BTH.Opcode = op
		if va, _, rkey, _ := transform.Target(&f); va != want[0] || uint64(rkey) != want[1] {
			t.Errorf("%v: %d, %d", op, va, rkey)
		}
	}
}

func TestNote(t *testing.T) {
	for want, n := range map[string]transform.Note{
		"CAS→WRITE conn 7 psn 12→4711 value 1, was 0": {
			From: wire.RCCmpSwap, To: wire.RCWriteOnly, Conn: 7, PSN: 12, NewPSN: 4711, Value: 1, Show: transform.ShowValue | transform.ShowPrior,
		},
		"CAS→WRITE conn 7 psn 12→4711 value 0x123456789abcdef, was 1048575": {
			From: wire.RCCmpSwap, To: wire.RCWriteOnly, Conn: 7, PSN: 12, NewPSN: 4711, Value: 0x123456789abcdef, Prior: 1<<20 - 1, Show: transform.ShowValue | transform.ShowPrior,
		},
		"CAS→WRITE conn 7 psn 12→4711 unchanged, was 5": {
			From: wire.RCCmpSwap, To: wire.RCWriteOnly, Conn: 7, PSN: 12, NewPSN: 4711, Prior: 5, Show: transform.ShowPrior,
		},
		"CAS→WRITE conn 4242 psn 12→4711 msn 300 value 0x100000": {
			From: wire.RCCmpSwap, To: wire.RCWriteOnly, Conn: 4242, PSN: 12, NewPSN: 4711, MSN: 300, Value: 1 << 20, Show: transform.ShowMSN | transform.ShowValue,
		},
		"FAA conn 7 psn 12→4711": {From: wire.RCFetchAdd, To: wire.RCFetchAdd, Conn: 7, PSN: 12, NewPSN: 4711},
		"ACK→ATOMIC_ACK conn 7 psn 4711→12 msn 3, was 0": {
			From: wire.RCAck, To: wire.RCAtomicAck, Conn: 7, PSN: 4711, NewPSN: 12, MSN: 3, Show: transform.ShowMSN | transform.ShowPrior,
		},
		"RC_SEND_ONLY own conn psn 13→12":                         {From: wire.RCSendOnly, To: wire.RCSendOnly, PSN: 13, NewPSN: 12},
		"made ACK own conn psn 12 msn 3, NAK_PSN_SEQ":             {From: wire.RCAck, To: wire.RCAck, NewPSN: 12, Made: true, MSN: 3, Show: transform.ShowMSN, Why: "NAK_PSN_SEQ"},
		"WRITE conn 7 psn 12→4711, again: no answer within 1.0ms": {From: wire.RCWriteOnly, To: wire.RCWriteOnly, Conn: 7, PSN: 12, NewPSN: 4711, Why: "again: no answer within 1.0ms"},
	} {
		if got := n.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// The functions of the hot path allocate no memory.
func TestAllocatesNothing(t *testing.T) {
	f := dirty()
	buf := make([]byte, 0, 256)
	var payload [transform.WordLen]byte
	to, back := shared(false), client(false)
	if n := testing.AllocsPerRun(100, func() {
		f.BTH.Opcode = wire.RCCmpSwap
		transform.ToWrite(&f, 5, &payload)
		transform.Request(&f, to, 1)
		buf = f.AppendTo(buf[:0])
		back.ACK(&f, 1, 1)
		transform.Response(&f, back, 1, 1)
		back.AtomicACK(&f, 1, 1, 5)
		buf = f.AppendTo(buf[:0])
		back.NAK(&f, 1, 1, wire.NakPSNSequence)
		p := transform.PathOf(&f)
		p = p.Back(3)
		p.Apply(&f, 1)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// For any input, the output is well-formed to another decoder and has the expected fields.
func FuzzRewrite(f *testing.F) {
	for name := range transformations {
		if g := readGolden(f, "testdata/"+name+".txt"); g.in != nil {
			f.Add(g.in, uint64(1), uint32(4711), true)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, value uint64, psn uint32, v6 bool) {
		var in, out wire.Frame
		if wire.ParseFrame(b, &in) != nil || len(in.Payload) > 9000 {
			return
		}
		n := wire.PSN(0).Add(int(psn))
		steps := []func(f *wire.Frame){func(f *wire.Frame) { transform.Response(f, client(v6), n, psn) }}
		op := in.BTH.Opcode
		if op.Is(wire.OpRequest) && op.Service() == wire.ServiceRC {
			steps = append(steps, func(f *wire.Frame) { transform.Request(f, shared(v6), n) }, func(f *wire.Frame) { transform.Renumber(f, n) })
		}
		if op.Has(wire.HasAtomicETH | wire.HasRETH) {
			steps = append(steps, func(f *wire.Frame) { write(f, shared(v6), n, value) }, func(f *wire.Frame) { transform.ToEmptyWrite(f); transform.Request(f, shared(v6), n) })
		}
		if op == wire.RCAck {
			steps = append(steps, func(f *wire.Frame) { client(v6).AtomicACK(f, n, psn, value) })
		}
		va, _, rkey, _ := transform.Target(&in)
		for i, step := range steps {
			f := in
			step(&f)
			b := f.AppendTo(nil)
			if err := wire.ParseFrame(b, &out); err != nil || !wire.CheckICRC(b) || f.Len() != len(b) {
				t.Fatalf("step %d: %x: %v", i, b, err)
			}
			if out.BTH.PSN != n || out.UDP.Checksum != 0 {
				t.Fatalf("step %d: psn %d, checksum %#x", i, out.BTH.PSN, out.UDP.Checksum)
			}
			if i >= 3 && op.Has(wire.HasAtomicETH|wire.HasRETH) && (out.RETH.VA != va || out.RETH.RKey != rkey || int(out.RETH.Length) != len(out.Payload)) {
				t.Fatalf("step %d: %+v with %d bytes", i, out.RETH, len(out.Payload))
			}
			if op.Known() {
				independent(t, b)
			}
		}
	})
}

// The response to an ATOMIC_WRITE or a FLUSH is a READ response without payload, on the path and with
// the numbers of the requester.
func TestWritten(t *testing.T) {
	to := shared(false)
	f := dirty()
	to.Written(&f, 12, 0x1000005)
	if f.BTH.Opcode != wire.RCReadResponseOnly || f.BTH.PSN != 12 || f.BTH.DestQP != to.DestQP || f.AETH != (wire.AETH{Syndrome: wire.AckNoCredits, MSN: 5}) ||
		len(f.Payload) != 0 || f.RETH != (wire.RETH{}) || f.AtomicAck != 0 {
		t.Errorf("%v, %+v, %+v", &f, f.AETH, f.RETH)
	}
}

// A checksum of UDP that a NIC has set does not fit a packet that the switch has changed.
func TestChangedPacketsHaveNoUDPChecksum(t *testing.T) {
	var word [transform.WordLen]byte
	for name, change := range map[string]func(f *wire.Frame){
		"renumbered":  func(f *wire.Frame) { transform.Renumber(f, 9) },
		"WRITE":       func(f *wire.Frame) { transform.ToWrite(f, 7, &word) },
		"empty WRITE": transform.ToEmptyWrite,
		"moved":       func(f *wire.Frame) { transform.Request(f, shared(false), 9) },
		"response":    func(f *wire.Frame) { transform.Response(f, shared(false), 9, 1) },
	} {
		f := wire.Frame{}
		f.BTH.Opcode, f.UDP.Checksum = wire.RCCmpSwap, 0x1234
		if change(&f); f.UDP.Checksum != 0 {
			t.Errorf("%s: %#x", name, f.UDP.Checksum)
		}
	}
}
