package engine

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/capture/pcapng"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// captured is a frame that Linux rxe sent (see the README of the captures).
type captured struct {
	raw   []byte
	frame wire.Frame
}

// readGolden returns the RoCEv2 frames of a capture by sender: those of the one that sends first,
// and those of the other.
func readGolden(t *testing.T, name string) (asked, answered []captured) {
	t.Helper()
	f, err := os.Open(filepath.Join("../wire/testdata/golden", name+".pcap"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcapng.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for {
		var p pcapng.Packet
		if err := r.Next(&p); errors.Is(err, io.EOF) {
			return asked, answered
		} else if err != nil {
			t.Fatal(err)
		}
		c := captured{raw: bytes.Clone(p.Data)}
		if wire.ParseFrame(c.raw, &c.frame) != nil {
			continue
		}
		if len(asked) == 0 || c.frame.Eth.Src == asked[0].frame.Eth.Src {
			asked = append(asked, c)
		} else {
			answered = append(answered, c)
		}
	}
}

// goldenSide is a NIC with the addresses of the sender of like, whose neighbour is its receiver,
// and a queue pair in RTS towards the queue pair dest of the receiver.
func goldenSide(t *testing.T, of verbs.QPType, like *wire.Frame, dest wire.QPN, send, recv wire.PSN) *side {
	t.Helper()
	e := newEngine(t, "golden", 7, like.Eth.Src, func(c *Config) {
		c.Resolve = func(netip.Addr) (wire.MAC, bool) { return like.Eth.Dst, true }
	}, like.SrcAddr())
	s := newSide(t, e)
	qp, err := e.CreateQP(s.pd, s.cq, s.cq, verbs.QPInit{Type: of})
	if err != nil {
		t.Fatal(err)
	}
	s.qp = qp
	rtr := verbs.ToRTR{DestQPN: dest, DestGID: verbs.GIDOf(like.DstAddr()), RecvPSN: recv, PathMTU: verbs.MTU1024}
	if rtr.TrafficClass = like.IPv4.TOS; like.V6 {
		rtr.TrafficClass = like.IPv6.TrafficClass
	}
	for _, err := range []error{
		qp.ToInit(verbs.ToInit{QKey: testQKey, Access: verbs.RemoteWrite}), qp.ToRTR(0, rtr),
		qp.ToRTS(0, verbs.ToRTS{SendPSN: send, Timeout: 14, RetryCount: 7, RNRRetry: 7}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// rxeSends are captures whose work requests are known; message m has the bytes i ^ i>>8 ^ m·0x5b.
var rxeSends = map[string]struct {
	of    verbs.QPType
	op    verbs.WROpcode
	sizes []int
	flags verbs.SendFlags
}{
	"rc_send_dscp": {verbs.RC, verbs.OpSend, []int{64, 64, 64, 64}, 0},
	"rc_send_pad":  {verbs.RC, verbs.OpSend, []int{67, 66, 65, 64, 63, 62, 61, 60}, 0},
	"v6_rc_send":   {verbs.RC, verbs.OpSend, []int{3000, 3000}, 0},
	"v6_rc_write":  {verbs.RC, verbs.OpWrite, []int{3001, 3001}, 0},
	"ll6_rc_send":  {verbs.RC, verbs.OpSend, []int{3000, 3000}, 0},
	"uc_send":      {verbs.UC, verbs.OpSend, []int{3000, 3000, 3000}, 0},
	"uc_send_imm":  {verbs.UC, verbs.OpSendImm, []int{64, 64}, 0},
	"uc_write":     {verbs.UC, verbs.OpWrite, []int{3000, 3000, 3000}, 0},
	"ud_send":      {verbs.UD, verbs.OpSend, []int{67, 66, 65, 64}, 0},
	"ud_send_imm":  {verbs.UD, verbs.OpSendImm, []int{1000, 1000}, 0},
}

// For the same work, our frames are the same as rxe's byte for byte, from the Ethernet header to
// the ICRC: over IPv4, IPv6 and link-local addresses, with a traffic class, for all transport
// services. Only random values are copied from the capture: the IP ID, and the fields that follow
// from the queue pair's number.
func TestFramesAreRxes(t *testing.T) {
	for name, c := range rxeSends {
		t.Run(name, func(t *testing.T) {
			asked, _ := readGolden(t, name)
			first := &asked[0].frame
			s := goldenSide(t, c.of, first, first.BTH.DestQP, first.BTH.PSN, 0)
			at := 0
			for m, n := range c.sizes {
				pattern(s.buf[:n], m)
				start := &asked[at].frame
				wr := verbs.SendWR{
					Op: c.op, Flags: c.flags, SGL: []verbs.SGE{s.sge(0, n)},
					RemoteAddr: start.RETH.VA, RKey: start.RETH.RKey, RemoteQPN: first.BTH.DestQP, RemoteQKey: testQKey,
				}
				packets := max(1, (n+1023)/1024)
				wr.Imm = asked[at+packets-1].frame.ImmDt
				if c.of == verbs.UD {
					wr.AH = ahTo(t, s, verbs.AHAttr{DestGID: verbs.GIDOf(first.DstAddr())})
				}
				if err := s.qp.PostSend(0, []verbs.SendWR{wr}, &s.out); err != nil {
					t.Fatal(err)
				}
				at += packets
			}
			if len(s.out.Frames) != len(asked) {
				t.Fatalf("%d frames, rxe sends %d", len(s.out.Frames), len(asked))
			}
			for i := range asked {
				want := &asked[i].frame
				sameBytes(t, i, rebuild(t, s.out.Frames[i].Data, func(f *wire.Frame) {
					f.IPv4.ID, f.UDP.SrcPort, f.DETH.SrcQP = want.IPv4.ID, want.UDP.SrcPort, want.DETH.SrcQP
				}), asked[i].raw)
			}
		})
	}
}

// pattern returns the bytes of message m.
func pattern(b []byte, m int) {
	for i := range b {
		b[i] = byte(i ^ i>>8 ^ m*0x5b)
	}
}

func sameBytes(t *testing.T, i int, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("frame %d\n%s\nrxe:\n%s", i, hex.Dump(got), hex.Dump(want))
	}
}

// Our NIC answers rxe's requests with the same frames as rxe did, over IPv6 byte for byte.
func TestAnswersAreRxes(t *testing.T) {
	for _, name := range []string{"v6_rc_send", "v6_rc_write", "ll6_rc_send", "rc_send_pad"} {
		t.Run(name, func(t *testing.T) {
			asked, answered := readGolden(t, name)
			s := goldenSide(t, verbs.RC, &answered[0].frame, answered[0].frame.BTH.DestQP, 0, asked[0].frame.BTH.PSN)
			next := 0
			for i := range asked {
				if asked[i].frame.BTH.Opcode.Is(wire.OpFirst | wire.OpOnly) {
					recvInto(t, s, 0, 4000)
				}
				b := rebuild(t, asked[i].raw, func(f *wire.Frame) {
					f.BTH.DestQP = s.qp.Num()
					f.RETH.VA, f.RETH.RKey = s.base, s.key
				})
				s.e.Frame(0, 0, packetio.Frame{Data: b}, &s.out)
				s.e.EndBatch(0, &s.out)
				for _, f := range s.out.Frames {
					if next >= len(answered) {
						t.Fatal("more answers than rxe gave")
					}
					want := &answered[next]
					sameBytes(t, next, rebuild(t, f.Data, func(f *wire.Frame) {
						f.IPv4.ID, f.UDP.SrcPort = want.frame.IPv4.ID, want.frame.UDP.SrcPort
					}), want.raw)
					next++
				}
				s.out.Reset()
			}
			if next != len(answered) {
				t.Errorf("%d answers, rxe gave %d", next, len(answered))
			}
		})
	}
}
