package transport

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/capture/pcapng"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// The captures are of two Linux rxe (see their README): A sends requests, B answers. Lost packets
// are missing in them, requests of A as well as answers of B.
const goldenDir = "../wire/testdata/golden"

// captured is a RoCE packet of a capture, from A or from B.
type captured struct {
	fromA bool
	pkt   wire.Packet
}

func readGolden(t *testing.T, name string) []captured {
	t.Helper()
	return readGoldenOf(t, name, wire.ServiceRC)
}

// readGoldenOf reads the packets of one transport service.
func readGoldenOf(t *testing.T, name string, service wire.Opcode) []captured {
	t.Helper()
	f, err := os.Open(filepath.Join(goldenDir, name+".pcap"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcapng.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var out []captured
	for {
		var p pcapng.Packet
		if err := r.Next(&p); errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		var frame wire.Frame
		if err := wire.ParseFrame(append([]byte(nil), p.Data...), &frame); err != nil {
			continue // the out-of-band exchange
		}
		if frame.BTH.Opcode.Service() == service {
			out = append(out, captured{frame.Eth.Src[5] == 1, frame.Packet})
		}
	}
}

func goldenMTU(name string) verbs.MTU {
	mtu := verbs.MTU1024
	_, _ = fmt.Sscanf(name, "mtu%d_", &mtu) // others keep 1024
	return mtu
}

// rxeResponder replays a capture with our responder in the place of B.
type rxeResponder struct {
	name    string
	packets []captured
	b       *side
	base    uint64 // lowest address in the capture: the start of B's region
	words   map[uint64]bool
	ours    []wire.Packet // answers of ours that were not yet found in the capture
}

// Our responder sends the same answers as rxe's: the same opcodes, PSNs, syndromes, MSNs, values
// and lengths in the same order, also under loss, duplicates and RNR. Answers that were lost are
// missing in the captures.
func TestRespondsLikeRxe(t *testing.T) {
	names, err := filepath.Glob(filepath.Join(goldenDir, "*.pcap"))
	if err != nil || len(names) == 0 {
		t.Fatal("no captures", err)
	}
	ran := 0
	for _, path := range names {
		name := strings.TrimSuffix(filepath.Base(path), ".pcap")
		switch name {
		case "nak_send_toolong": // differs on purpose, see TestTooLongUnlikeRxe
			continue
		case "loss_send", "loss_write_imm": // the capture does not show when receives were posted
			continue
		}
		x := &rxeResponder{name: name, packets: readGolden(t, name), words: map[uint64]bool{}}
		if len(x.packets) == 0 || strings.HasPrefix(name, "cm_") || name == "no_such_qp" {
			continue
		}
		ran++
		t.Run(name, func(t *testing.T) { x.run(t) })
	}
	if ran < 30 {
		t.Errorf("only %d captures were replayed", ran)
	}
}

func (x *rxeResponder) run(t *testing.T) {
	x.b = newSide(t, "b", 1, 1<<20, Config{QPN: 0x111, MaxRecvWR: 1024, Window: maxWindow})
	x.base = ^uint64(0)
	first := -1
	for i, c := range x.packets {
		if c.fromA && c.pkt.BTH.Opcode.Is(wire.OpRequest) && first < 0 {
			first = i
		}
		for _, va := range []uint64{c.pkt.RETH.VA, c.pkt.AtomicETH.VA} {
			if c.fromA && va != 0 {
				x.base = min(x.base, va)
			}
		}
	}
	if err := x.b.qp.ToInit(verbs.ToInit{Access: allRemote}); err != nil {
		t.Fatal(err)
	}
	rtr := verbs.ToRTR{PathMTU: goldenMTU(x.name), RecvPSN: x.packets[first].pkt.BTH.PSN, MaxDestRdAtomic: 128, MinRNRTimer: 18}
	if err := x.b.qp.ToRTR(0, rtr); err != nil {
		t.Fatal(err)
	}
	for i, c := range x.packets {
		switch request := c.pkt.BTH.Opcode.Is(wire.OpRequest); {
		case c.fromA && request:
			x.ask(t, i)
		case !c.fromA && !request:
			x.find(t, i)
		}
	}
	if !strings.HasPrefix(x.name, "loss_") && len(x.ours) > 0 {
		t.Errorf("answers that rxe did not give: %v", x.ours)
	}
}

// ask sends request i to our responder, with key and address translated.
func (x *rxeResponder) ask(t *testing.T, i int) {
	p := x.packets[i].pkt
	op := p.BTH.Opcode
	p.RETH.RKey, p.AtomicETH.RKey = x.b.mem.RKey(), x.b.mem.RKey()
	if strings.HasSuffix(x.name, "_rkey") {
		p.RETH.RKey ^= 1
		p.AtomicETH.RKey ^= 1
	}
	p.RETH.VA += x.b.mem.Base() - x.base
	if x.name == "nak_write_range" {
		p.RETH.VA = x.b.mem.Base() + uint64(x.b.mem.Len()) - 1
	}
	off := p.AtomicETH.VA - x.base
	p.AtomicETH.VA = x.b.mem.Base() + off
	if op.Is(wire.OpAtomic) && !x.words[off] {
		x.words[off] = true
		if a := x.answerTo(i); a != nil && a.BTH.Opcode == wire.RCAtomicAck {
			if err := x.b.mem.Store64(int(off), a.AtomicAck); err != nil {
				t.Fatal(err)
			}
		}
	}
	if q := x.b.qp.Query(); needsReceive(op) && q.RecvQueued == 0 && q.RecvPSN == p.BTH.PSN {
		if a := x.answerTo(i); a == nil || !a.AETH.Syndrome.IsRNR() {
			recvOf(t, x.b, 1<<20)
		}
	}
	if wire.Diff(p.BTH.PSN, x.b.qp.Query().RecvPSN) < 0 {
		p.BTH.AckReq = true // rxe acknowledges every duplicate, ours only one that asks for it
	}
	x.b.qp.Handle(0, &p, &x.b.out)
	for j := range x.b.out.Tx {
		x.ours = append(x.ours, x.b.out.Tx[j].Packet)
		x.ours[len(x.ours)-1].Payload = append([]byte(nil), x.ours[len(x.ours)-1].Payload...)
	}
	x.b.out.Reset()
}

func needsReceive(op wire.Opcode) bool {
	return (op.Is(wire.OpSend) && op.Is(wire.OpFirst|wire.OpOnly)) || (op.Is(wire.OpWrite) && op.Is(wire.OpImm))
}

// answerTo returns the next answer of rxe with the PSN of packet i.
func (x *rxeResponder) answerTo(i int) *wire.Packet {
	for j := i + 1; j < len(x.packets); j++ {
		if c := &x.packets[j]; !c.fromA && !c.pkt.BTH.Opcode.Is(wire.OpRequest) && c.pkt.BTH.PSN == x.packets[i].pkt.BTH.PSN {
			return &c.pkt
		}
	}
	return nil
}

// find searches our answers for rxe's answer i; only in a lossy capture may some of ours be
// skipped.
func (x *rxeResponder) find(t *testing.T, i int) {
	want := answerText(&x.packets[i].pkt)
	for j := range x.ours {
		if answerText(&x.ours[j]) == want {
			if j > 0 && !strings.HasPrefix(x.name, "loss_") {
				t.Errorf("packet %d: ours has %s before %s", i, answerText(&x.ours[0]), want)
			}
			x.ours = x.ours[j+1:]
			return
		}
	}
	t.Errorf("packet %d: rxe answers %s, ours %v", i, want, x.ours)
}

func answerText(p *wire.Packet) string {
	return fmt.Sprintf("%v psn=%06x %v msn=%d value=%d len=%d", p.BTH.Opcode, uint32(p.BTH.PSN), p.AETH.Syndrome, p.AETH.MSN, p.AtomicAck, len(p.Payload))
}

// For a SEND that is too long our responder sends the NAK of the specification; rxe sends another
// one.
func TestTooLongUnlikeRxe(t *testing.T) {
	a, b := newPair(t)
	recvOf(t, b, 10)
	sendOf(t, a, b, 11)
	if wc := onlyWC(t, a.scq); wc.Status != verbs.RemInvReqErr {
		t.Errorf("ours: %v", wc.Status)
	}
	for _, c := range readGolden(t, "nak_send_toolong") {
		if !c.fromA && c.pkt.AETH.Syndrome != wire.NakRemoteOp {
			t.Errorf("rxe: %v", c.pkt.AETH.Syndrome)
		}
	}
}

// rxeRequests are captures without loss whose work requests are known.
var rxeRequests = map[string]struct {
	op    verbs.WROpcode
	sizes []int
	flags verbs.SendFlags
}{
	"rc_send_small":      {verbs.OpSend, []int{64, 64, 64, 64}, 0},
	"rc_send_64k":        {verbs.OpSend, []int{65536, 65536}, 0},
	"rc_send_pad":        {verbs.OpSend, []int{67, 66, 65, 64, 63, 62, 61, 60}, 0},
	"rc_send_zero":       {verbs.OpSend, []int{0, 0}, 0},
	"rc_send_imm":        {verbs.OpSendImm, []int{64, 64, 64}, verbs.Solicited},
	"rc_send_imm_multi":  {verbs.OpSendImm, []int{3000, 3000}, 0},
	"rc_send_psnwrap":    {verbs.OpSend, []int{3000, 3000, 3000}, 0},
	"rc_write_only":      {verbs.OpWrite, []int{64, 64, 64, 64}, 0},
	"rc_write_multi":     {verbs.OpWrite, []int{3001, 3001, 3001, 3001}, 0},
	"rc_write_64k":       {verbs.OpWrite, []int{65536, 65536}, 0},
	"rc_write_imm":       {verbs.OpWriteImm, []int{64, 64, 64}, 0},
	"rc_write_imm_multi": {verbs.OpWriteImm, []int{3000, 3000}, 0},
	"rc_read_only":       {verbs.OpRead, []int{64, 64, 64, 64}, 0},
	"rc_read_multi":      {verbs.OpRead, []int{16384, 16384}, 0},
	"rc_atomic_cas":      {verbs.OpCmpSwap, []int{8, 8, 8, 8}, 0},
	"rc_atomic_faa":      {verbs.OpFetchAdd, []int{8, 8, 8, 8}, 0},
	"v6_rc_read":         {verbs.OpRead, []int{5000, 5000}, 0},
	"mtu4096_rc_send":    {verbs.OpSend, []int{20000, 20000}, 0},
	"mtu4096_rc_write":   {verbs.OpWrite, []int{20001, 20001}, 0},
	"mtu256_rc_read":     {verbs.OpRead, []int{2000, 2000}, 0},
}

// Our requester sends the same packets as rxe's for known work requests: opcodes, PSNs, AckReq,
// solicited, DMA and payload lengths. Ours asks for an ACK more often inside long messages unless
// AckEvery is large, so it is large here.
func TestRequestsLikeRxe(t *testing.T) {
	for name, c := range rxeRequests {
		t.Run(name, func(t *testing.T) {
			var want, answers []wire.Packet
			for _, p := range readGolden(t, name) {
				if p.fromA {
					want = append(want, p.pkt)
				} else {
					answers = append(answers, p.pkt)
				}
			}
			a := newSide(t, "a", 1, 1<<17, Config{QPN: 0x11, Window: maxWindow, AckEvery: maxWindow})
			rts := defaultLink.rts
			rts.SendPSN = want[0].BTH.PSN
			for _, err := range []error{
				a.qp.ToInit(verbs.ToInit{}), a.qp.ToRTR(0, verbs.ToRTR{PathMTU: goldenMTU(name)}), a.qp.ToRTS(0, rts),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			for i, n := range c.sizes {
				post(t, a, verbs.SendWR{ID: uint64(i), Op: c.op, Flags: c.flags | verbs.Signalled, SGL: []verbs.SGE{a.sge(0, n)}})
			}
			for i := range answers {
				a.qp.Handle(0, &answers[i], &a.out)
			}
			if len(a.out.Tx) != len(want) || len(a.out.Done) != len(c.sizes) {
				t.Fatalf("%d packets and %d completions, want %d and %d", len(a.out.Tx), len(a.out.Done), len(want), len(c.sizes))
			}
			for i := range want {
				if got, want := requestText(&a.out.Tx[i].Packet), requestText(&want[i]); got != want {
					t.Errorf("packet %d: %s, rxe sends %s", i, got, want)
				}
			}
			for _, d := range a.out.Done {
				if d.WC.Status != verbs.Success {
					t.Errorf("work request %d: %v", d.WC.ID, d.WC.Status)
				}
			}
		})
	}
}

func requestText(p *wire.Packet) string {
	return fmt.Sprintf("%v psn=%06x ack-req=%v solicited=%v dma=%d len=%d", p.BTH.Opcode, uint32(p.BTH.PSN), p.BTH.AckReq, p.BTH.Solicited, p.RETH.Length, len(p.Payload))
}
