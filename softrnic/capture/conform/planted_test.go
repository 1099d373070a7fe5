package conform

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/capture/pcapng"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// frame is one of a capture that a test changes.
type frame struct {
	f       wire.Frame
	raw     func([]byte) // changes the bytes, behind the ICRC's computation
	comment string
	planted bool
}

// film is the frames of a capture.
type film struct {
	t      *testing.T
	frames []*frame
}

func open(t *testing.T, name string) *film {
	t.Helper()
	file, err := os.ReadFile("../../wire/testdata/golden/" + name + ".pcap")
	if err != nil {
		t.Fatal(err)
	}
	r, err := pcapng.NewReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	m := &film{t: t}
	for {
		var p pcapng.Packet
		if err := r.Next(&p); errors.Is(err, io.EOF) {
			return m
		} else if err != nil {
			t.Fatal(err)
		}
		x := &frame{}
		if wire.ParseFrame(bytes.Clone(p.Data), &x.f) == nil {
			m.frames = append(m.frames, x)
		}
	}
}

// find returns the place of the nth frame, from 1, with the opcode.
func (m *film) find(op wire.Opcode, n int) int {
	m.t.Helper()
	for i, x := range m.frames {
		if x.f.BTH.Opcode == op {
			if n--; n == 0 {
				return i
			}
		}
	}
	m.t.Fatalf("no such %v", op)
	return 0
}

// insert puts a copy of frame i at place at.
func (m *film) insert(at, i int) *frame {
	x := *m.frames[i]
	m.frames = slices.Insert(m.frames, at, &x)
	return &x
}

// file returns the capture, and the number of the planted packet.
func (m *film) file() (file []byte, planted int) {
	m.t.Helper()
	var out bytes.Buffer
	w, err := pcapng.NewWriter(&out)
	if err != nil {
		m.t.Fatal(err)
	}
	id, err := w.AddInterface("", pcapng.Ethernet)
	if err != nil {
		m.t.Fatal(err)
	}
	for i, x := range m.frames {
		data := x.f.AppendTo(nil)
		if x.raw != nil {
			x.raw(data)
		}
		if x.planted {
			planted = i + 1
		}
		if err := w.WritePacket(id, int64(i)*1000, data, x.comment); err != nil {
			m.t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		m.t.Fatal(err)
	}
	return out.Bytes(), planted
}

// set returns a change of the nth packet with the opcode, which is the one that breaks the rule.
func set(op wire.Opcode, n int, change func(f *wire.Frame)) func(*film) {
	return func(m *film) {
		x := m.frames[m.find(op, n)]
		x.planted = true
		change(&x.f)
	}
}

// raw returns a change of the bytes of the nth packet with the opcode.
func raw(op wire.Opcode, n int, change func(b []byte)) func(*film) {
	return func(m *film) {
		x := m.frames[m.find(op, n)]
		x.planted, x.raw = true, change
	}
}

// led returns a change of the nth packet with the opcode by which another, the `late` frames behind it, breaks the rule.
func led(op wire.Opcode, n, late int, change func(f *wire.Frame)) func(*film) {
	return func(m *film) {
		i := m.find(op, n)
		m.frames[i+late].planted = true
		change(&m.frames[i].f)
	}
}

// become changes the opcode.
func become(op wire.Opcode) func(f *wire.Frame) { return func(f *wire.Frame) { f.BTH.Opcode = op } }

// move changes the PSN.
func move(by int) func(f *wire.Frame) { return func(f *wire.Frame) { f.BTH.PSN = f.BTH.PSN.Add(by) } }

// size changes the length of the payload.
func size(n int) func(f *wire.Frame) { return func(f *wire.Frame) { f.Payload = make([]byte, n) } }

// says changes the syndrome.
func says(s wire.Syndrome) func(f *wire.Frame) { return func(f *wire.Frame) { f.AETH.Syndrome = s } }

// counts changes the MSN.
func counts(by int) func(f *wire.Frame) {
	return func(f *wire.Frame) { f.AETH.MSN = uint32(wire.PSN(f.AETH.MSN).Add(by)) }
}

// message changes the connection manager's message in the nth datagram.
func message[M mad.Message](n int, change func(m M)) func(*film) {
	return func(m *film) {
		f := &m.frames[m.find(wire.UDSendOnly, n)].f
		var h mad.Header
		body, err := mad.Parse(f.Payload, &h)
		if err != nil {
			m.t.Fatal(err)
		}
		change(body.(M))
		f.Payload = mad.Append(nil, h.TID, body)
	}
}

// bth is where the BTH begins in a frame over IPv4.
const bth = 14 + 20 + 8

// planted are captures in which one packet breaks a rule.
var planted = []struct {
	name, file string
	change     func(*film)
	rule       Rule
}{
	{"a pad count in an ACK", "rc_send_small", raw(wire.RCAck, 2, func(b []byte) { b[bth+1] |= 0x10 }), Format},
	{"an ACK with payload", "rc_send_small", raw(wire.RCSendOnly, 2, func(b []byte) { b[bth] = byte(wire.RCAck) }), Format},
	{"a READ request with payload", "rc_send_small", raw(wire.RCSendOnly, 1, func(b []byte) { b[bth] = byte(wire.RCReadRequest) }), Format},
	{"an opcode that is none", "rc_send_small", set(wire.RCSendOnly, 2, become(0x15)), Opcode},
	{"an opcode of reliable datagrams", "rc_send_small", set(wire.RCSendOnly, 2, become(0x44)), Opcode},
	{"a changed bit in the payload", "rc_write_64k", raw(wire.RCWriteMiddle, 7, func(b []byte) { b[100] ^= 4 }), ICRC},
	{"a changed bit in the ICRC", "rc_send_small", raw(wire.RCAck, 1, func(b []byte) { b[len(b)-1] ^= 1 }), ICRC},
	{"a version", "rc_send_small", set(wire.RCSendOnly, 3, func(f *wire.Frame) { f.BTH.Version = 1 }), Version},
	{"a reserved bit that switches may change", "rc_send_small", set(wire.RCSendOnly, 3, func(f *wire.Frame) { f.BTH.Reserved6 = 1 }), Reserved},
	{"a reserved bit", "rc_send_small", set(wire.RCAck, 3, func(f *wire.Frame) { f.BTH.Reserved7 = 64 }), Reserved},
	{"a request to queue pair 0", "rc_send_small", set(wire.RCSendOnly, 4, func(f *wire.Frame) { f.BTH.DestQP = 0 }), QueuePair},
	{"a request to queue pair 1", "rc_send_small", set(wire.RCSendOnly, 4, func(f *wire.Frame) { f.BTH.DestQP = 1 }), QueuePair},
	{"a request to a group", "uc_send", set(wire.UCSendFirst, 3, func(f *wire.Frame) { f.BTH.DestQP = multicast }), QueuePair},
	{"a first packet that is solicited", "rc_send_64k", set(wire.RCSendFirst, 2, func(f *wire.Frame) { f.BTH.Solicited = true }), Solicited},
	{"a READ that is solicited", "rc_read_only", set(wire.RCReadRequest, 1, func(f *wire.Frame) { f.BTH.Solicited = true }), Solicited},
	{"a WRITE that is solicited", "rc_write_only", set(wire.RCWriteOnly, 1, func(f *wire.Frame) { f.BTH.Solicited = true }), Solicited},
	{"an ACK that is solicited", "rc_send_small", set(wire.RCAck, 4, func(f *wire.Frame) { f.BTH.Solicited = true }), Solicited},
	{"a management datagram with another Q_Key", "cm_rping_v4", set(wire.UDSendOnly, 1, func(f *wire.Frame) { f.DETH.QKey = 7 }), Management},
	{"a short management datagram", "cm_reject", set(wire.UDSendOnly, 2, func(f *wire.Frame) { f.Payload = f.Payload[:128] }), Management},
	{"a long datagram", "ud_send", set(wire.UDSendOnly, 3, size(4100)), MTU},
	{"a REP to another REQ", "cm_rping_v4", func(m *film) {
		message(2, func(r *mad.REP) { r.RemoteID++ })(m)
		m.frames[m.find(wire.UDSendOnly, 2)].planted = true
	}, Answer},
	{"an RTU to another REP", "cm_rping_v6", func(m *film) {
		message(3, func(r *mad.RTU) { r.RemoteID++ })(m)
		m.frames[m.find(wire.UDSendOnly, 3)].planted = true
	}, Answer},

	{"a first PSN before the agreed one", "cm_rping_v4", func(m *film) {
		message(2, func(r *mad.REP) { r.PSN = r.PSN.Add(3) })(m)
		m.frames[m.find(wire.RCSendOnly, 1)].planted = true
	}, Start},
	{"a first PSN far behind the agreed one", "cm_rping_v4", func(m *film) {
		message(2, func(r *mad.REP) { r.PSN = r.PSN.Add(-0x100000) })(m)
		m.frames[m.find(wire.RCSendOnly, 1)].planted = true
	}, Start},
	{"a first PSN behind the agreed one", "cm_rping_v6", func(m *film) {
		message(2, func(r *mad.REP) { r.PSN = r.PSN.Add(-2) })(m)
		m.frames[m.find(wire.RCSendOnly, 1)].planted = true
	}, PSN},
	{"a PSN that is left out", "rc_send_64k", func(m *film) {
		i := m.find(wire.RCSendMiddle, 10)
		m.frames[i+1].planted = true
		m.frames = slices.Delete(m.frames, i, i+1)
	}, PSN},
	{"a PSN that is used twice", "rc_write_64k", set(wire.RCWriteMiddle, 10, move(1)), PSN},
	{"a PSN far away", "rc_write_multi", set(wire.RCWriteFirst, 3, move(0x300000)), PSN},
	{"a SEND with the PSN of a READ response", "rc_read_multi", set(wire.RCReadRequest, 2, func(f *wire.Frame) { f.BTH.Opcode, f.BTH.PSN = wire.RCSendOnly, f.BTH.PSN-1 }), PSN},
	{"a READ with the PSN of a READ response", "rc_read_multi", set(wire.RCReadRequest, 2, move(-1)), Part},
	{"a copy with another address", "loss_write", again(wire.RCWriteFirst, func(f *wire.Frame) { f.RETH.VA += 8 }), Copy},
	{"a copy with another R_Key", "loss_faa", again(wire.RCFetchAdd, func(f *wire.Frame) { f.AtomicETH.RKey++ }), Copy},
	{"a copy with another operand", "loss_faa", again(wire.RCFetchAdd, func(f *wire.Frame) { f.AtomicETH.SwapOrAdd++ }), Copy},
	{"a copy with another length", "rnr_send", again(wire.RCSendOnly, size(96)), Copy},
	{"a copy with another opcode", "rnr_send", again(wire.RCSendOnly, become(wire.RCSendOnlyImm)), Copy},
	{"a copy with other immediate data", "rnr_write_imm", again(wire.RCWriteLastImm, func(f *wire.Frame) { f.ImmDt++ }), Copy},
	{"a last packet too early", "rc_send_64k", led(wire.RCSendMiddle, 20, 1, become(wire.RCSendLast)), Sequence},
	{"a message that begins with a middle packet", "rc_send_64k", set(wire.RCSendFirst, 2, become(wire.RCSendMiddle)), Sequence},
	{"a message without end", "rc_send_64k", led(wire.RCSendLast, 1, 2, become(wire.RCSendMiddle)), Sequence},
	{"a WRITE that ends as a SEND", "rc_write_multi", set(wire.RCWriteLast, 2, become(wire.RCSendLast)), Sequence},
	{"an only packet in a message", "rc_write_64k", set(wire.RCWriteMiddle, 3, func(f *wire.Frame) {
		f.BTH.Opcode, f.RETH = wire.RCWriteOnly, wire.RETH{Length: 1024}
	}), Sequence},
	{"a message of an unreliable connection without end", "uc_send", set(wire.UCSendLast, 1, become(wire.UCSendMiddle)), MTU},
	{"a first packet in the middle", "uc_send", set(wire.UCSendMiddle, 2, become(wire.UCSendFirst)), Sequence},
	{"a short first packet", "rc_send_64k", set(wire.RCSendFirst, 2, size(512)), MTU},
	{"a short middle packet", "rc_write_64k", set(wire.RCWriteMiddle, 30, size(1020)), MTU},
	{"a long last packet", "rc_send_imm_multi", set(wire.RCSendLastImm, 1, size(1028)), MTU},
	{"an empty last packet", "uc_send", set(wire.UCSendLast, 2, size(0)), MTU},
	{"an only packet longer than the path MTU", "cm_rping_v4", set(wire.RCSendOnly, 1, size(1028)), MTU},
	{"a WRITE that lacks bytes", "rc_write_multi", set(wire.RCWriteLast, 1, size(949)), Length},
	{"a WRITE with more bytes", "rc_write_imm", set(wire.RCWriteOnlyImm, 2, size(65)), Length},
	{"a WRITE that says fewer bytes", "rc_write_multi", set(wire.RCWriteFirst, 4, func(f *wire.Frame) { f.RETH.Length = 1024 }), Length},
	{"a WRITE that says more bytes", "uc_write", led(wire.UCWriteFirst, 3, 2, func(f *wire.Frame) { f.RETH.Length++ }), Length},
	{"a READ of more than 2 GiB", "rc_read_only", set(wire.RCReadRequest, 4, func(f *wire.Frame) { f.RETH.Length = 1<<31 + 1 }), Length},
	{"an atomic at half a word that is executed", "rc_atomic_faa", func(m *film) {
		m.frames[m.find(wire.RCFetchAdd, 3)].f.AtomicETH.VA += 4
		m.frames[m.find(wire.RCAtomicAck, 3)].planted = true
	}, Alignment},
	{"more READs than agreed", "cm_rping_v4", func(m *film) {
		message(1, func(r *mad.REQ) { r.ResponderResources = 1 })(m)
		i := m.find(wire.RCReadRequest, 1)
		x := m.insert(i+1, i)
		x.planted, x.f.BTH.PSN = true, x.f.BTH.PSN.Next()
	}, Depth},

	{"an unknown NAK code", "nak_write_rkey", set(wire.RCAck, 1, says(0x65)), Syndrome},
	{"a reserved bit in the syndrome", "rc_send_small", set(wire.RCAck, 2, says(0x9f)), Syndrome},
	{"a reserved kind of syndrome", "rc_send_small", set(wire.RCAck, 2, says(0x40)), Syndrome},
	{"a READ response that refuses", "rc_read_only", set(wire.RCReadResponseOnly, 2, says(wire.NakRemoteAccess)), Positive},
	{"an atomic's answer that refuses", "rc_atomic_cas", set(wire.RCAtomicAck, 2, says(wire.RNRNak|5)), Positive},
	{"an ACK of the next PSN", "rc_send_small", set(wire.RCAck, 4, move(1)), Unsent},
	{"an ACK of a far PSN", "rc_write_only", set(wire.RCAck, 2, move(1000)), Unsent},
	{"an ACK to another queue pair", "rc_send_small", set(wire.RCAck, 2, func(f *wire.Frame) { f.BTH.DestQP += 77 }), Unsent},
	{"an ACK of a lost request", "rc_send_small", func(m *film) {
		m.frames[m.find(wire.RCSendOnly, 3)].comment = "fault f1 (loss): dropped"
		m.frames[m.find(wire.RCAck, 3)].planted = true
	}, Missing},
	{"an ACK for a READ", "rc_read_only", set(wire.RCReadResponseOnly, 2, become(wire.RCAck)), Kind},
	{"an ACK for an atomic", "rc_atomic_faa", set(wire.RCAtomicAck, 1, become(wire.RCAck)), Kind},
	{"an original value for a SEND", "rc_send_small", set(wire.RCAck, 1, become(wire.RCAtomicAck)), Kind},
	{"a READ response for a WRITE", "rc_write_only", set(wire.RCAck, 1, become(wire.RCReadResponseOnly)), Kind},
	{"a READ response for an atomic", "rc_atomic_cas", set(wire.RCAtomicAck, 3, become(wire.RCReadResponseOnly)), Kind},
	{"READ responses that begin in the middle", "rc_read_multi", set(wire.RCReadResponseFirst, 2, become(wire.RCReadResponseMiddle)), ReadOrder},
	{"READ responses that end too early", "rc_read_multi", set(wire.RCReadResponseMiddle, 5, func(f *wire.Frame) { f.BTH.Opcode, f.AETH.Syndrome = wire.RCReadResponseLast, wire.AckNoCredits }), ReadOrder},
	{"READ responses that do not end", "v6_rc_read", set(wire.RCReadResponseLast, 2, become(wire.RCReadResponseMiddle)), ReadOrder},
	{"a single READ response that is a first one", "rc_read_only", set(wire.RCReadResponseOnly, 3, become(wire.RCReadResponseFirst)), ReadOrder},
	{"a READ response that lacks bytes", "rc_read_only", set(wire.RCReadResponseOnly, 1, size(60)), ReadLength},
	{"a last READ response with more bytes", "v6_rc_read", set(wire.RCReadResponseLast, 1, size(908)), ReadLength},
	{"a short middle READ response", "mtu4096_rc_read", set(wire.RCReadResponseMiddle, 1, size(2048)), ReadLength},
	{"an ACK that comes twice", "rc_send_small", func(m *film) {
		i := m.find(wire.RCAck, 4)
		m.insert(i+1, i).planted = true
	}, Backward},
	{"a READ response that comes twice", "rc_read_multi", func(m *film) {
		i := m.find(wire.RCReadResponseMiddle, 9)
		m.insert(i+1, i).planted = true
	}, Backward},
	{"an atomic's answer that comes twice", "perf_atomic_faa", func(m *film) {
		i := m.find(wire.RCAtomicAck, 9)
		m.insert(i+1, i).planted = true
	}, Backward},
	{"an MSN that skips one", "rc_send_small", set(wire.RCAck, 4, counts(1)), MSN},
	{"an MSN that stands still", "rc_write_multi", set(wire.RCAck, 3, counts(-1)), MSN},
	{"an MSN far away", "rc_send_pad", set(wire.RCAck, 5, counts(1<<20)), MSN},
	{"an MSN of a READ response that skips one", "rc_read_only", set(wire.RCReadResponseOnly, 4, counts(1)), MSN},
	{"an MSN of an atomic's answer that goes back", "perf_atomic_cas", set(wire.RCAtomicAck, 6, counts(-3)), MSN},
	{"an RNR NAK for a WRITE", "rc_write_only", set(wire.RCAck, 3, says(wire.RNRNak|12)), RNR},
	{"a NAK of reliable datagrams", "nak_write_range", set(wire.RCAck, 1, says(wire.NakInvalidRD)), NakCode},
	{"an access error for a SEND", "nak_send_toolong", set(wire.RCAck, 1, says(wire.NakRemoteAccess)), NakCode},
	{"an ACK behind a fatal NAK", "nak_write_rkey", func(m *film) {
		i := m.find(wire.RCAck, 1)
		x := m.insert(i+1, i)
		x.planted, x.f.AETH.Syndrome, x.f.BTH.PSN = true, wire.AckNoCredits, x.f.BTH.PSN.Add(2)
	}, AfterNak},
	{"an atomic that is executed twice", "loss_faa", func(m *film) {
		seen := map[wire.PSN]bool{}
		for _, x := range m.frames {
			if x.f.BTH.Opcode == wire.RCAtomicAck {
				if seen[x.f.BTH.PSN] {
					x.planted = true
					x.f.AtomicAck += 3
					return
				}
				seen[x.f.BTH.PSN] = true
			}
		}
	}, Replay},
	{"an ACK with credits", "rc_send_small", set(wire.RCAck, 3, says(5)), Credits},
	{"a PSN of an unreliable connection that comes twice", "uc_send_imm", set(wire.UCSendOnlyImm, 2, move(-1)), Unreliable},
	{"an unreliable message that comes twice", "uc_write", func(m *film) {
		m.insert(len(m.frames), m.find(wire.UCWriteFirst, 3)).planted = true
	}, Unreliable},
	{"a NAK that asks for a PSN that was acknowledged", "loss_write", nak(func(f *wire.Frame) { f.BTH.PSN = f.BTH.PSN.Add(-1) }), NakRange},
	{"a NAK that asks for less than what is missing", "loss_send", nak(func(f *wire.Frame) { f.BTH.PSN = f.BTH.PSN.Add(1) }), NakRange},
	{"a NAK that comes twice", "loss_write", func(m *film) {
		nak(func(*wire.Frame) {})(m)
		i := slices.IndexFunc(m.frames, func(x *frame) bool { return x.planted })
		m.frames[i].planted = false
		m.insert(i+1, i).planted = true
	}, OneNak},
}

// again returns a change of the first packet with the opcode that is a copy, other than of the flow's first packet.
func again(op wire.Opcode, change func(f *wire.Frame)) func(*film) {
	return func(m *film) {
		seen := map[wire.PSN]bool{}
		for _, x := range m.frames {
			if x.f.BTH.Opcode != op {
				continue
			}
			if psn := x.f.BTH.PSN; seen[psn] && psn != m.frames[0].f.BTH.PSN {
				x.planted = true
				change(&x.f)
				return
			}
			seen[x.f.BTH.PSN] = true
		}
	}
}

// nak returns a change of the first sequence NAK.
func nak(change func(f *wire.Frame)) func(*film) {
	return func(m *film) {
		for _, x := range m.frames {
			if x.f.BTH.Opcode == wire.RCAck && x.f.AETH.Syndrome == wire.NakPSNSequence {
				x.planted = true
				change(&x.f)
				return
			}
		}
	}
}

// Each planted violation is named, as the first of its flow: the packet, and the rule.
func TestPlanted(t *testing.T) {
	tried := map[string]bool{}
	for _, c := range planted {
		t.Run(c.name, func(t *testing.T) {
			m := open(t, c.file)
			c.change(m)
			file, number := m.file()
			if number == 0 {
				t.Fatal("nothing is planted")
			}
			tried[c.rule.Name] = true
			found := check(t, file)
			if len(found) == 0 || found[0].Packet.Number != number || found[0].Rule != c.rule {
				t.Errorf("packet %d breaks %s; found:", number, c.rule.Name)
				for _, v := range found {
					t.Errorf("packet %d breaks %s: %s", v.Packet.Number, v.Rule.Name, v.Why)
				}
			}
		})
	}
	for _, c := range plantedXRC {
		tried[c.rule.Name] = true
	}
	for _, r := range Rules() {
		if !tried[r.Name] {
			t.Errorf("nothing breaks rule %s", r.Name)
		}
	}
	if len(planted) < 50 {
		t.Errorf("%d violations are planted", len(planted))
	}
}
