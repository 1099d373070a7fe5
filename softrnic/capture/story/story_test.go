package story

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/capture/conform"
	"github.com/rdmalab/rdmalab/softrnic/capture/dump"
	"github.com/rdmalab/rdmalab/softrnic/capture/flows"
	"github.com/rdmalab/rdmalab/softrnic/capture/ladder"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// play adds packets of connections between cn0 (10.0.0.1) and ms0 (10.0.0.2), captured on the link of cn0.
type play struct {
	book flows.Book
	into func(*dump.Record) error // instead of book
	now  int64
	msn  uint32
}

func (p *play) add(t testing.TB, request bool, q wire.QPN, op wire.Opcode, psn wire.PSN, syn wire.Syndrome, comments ...string) {
	t.Helper()
	r := &dump.Record{Verdict: dump.OK}
	r.Name, r.Time, r.Comments = "cn0 up", p.now, comments
	p.now += 1000
	src, dst := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	if !request {
		src, dst, r.Name = dst, src, "cn0 down"
	}
	r.Frame.IPv4.Src, r.Frame.IPv4.Dst = src.As4(), dst.As4()
	r.Frame.BTH = wire.BTH{Opcode: op, DestQP: q, PSN: psn}
	if op.Has(wire.HasRETH) {
		r.Frame.RETH = wire.RETH{VA: 0x1000 + uint64(psn)*64, RKey: 0xabc, Length: 64}
	}
	r.Frame.AETH = wire.AETH{Syndrome: syn, MSN: p.msn}
	into := p.into
	if into == nil {
		into = p.book.Add
	}
	if err := into(r); err != nil {
		t.Fatal(err)
	}
}

// named makes the packet that names the peer by its link.
func (p *play) named(t testing.TB) {
	t.Helper()
	r := &dump.Record{Verdict: dump.Malformed}
	r.Name, r.Time = "ms0 up", p.now
	r.Frame.IPv4.Src = netip.MustParseAddr("10.0.0.2").As4()
	if err := p.book.Add(r); err != nil {
		t.Fatal(err)
	}
}

func (p *play) send(t testing.TB, op wire.Opcode, psn wire.PSN, comments ...string) {
	t.Helper()
	p.add(t, true, 0x22, op, psn, 0, comments...)
}

func (p *play) answer(t testing.TB, op wire.Opcode, psn wire.PSN, s wire.Syndrome, comments ...string) {
	t.Helper()
	p.add(t, false, 0x11, op, psn, s, comments...)
}

// read sends a READ of so many responses of 4096 bytes.
func (p *play) read(t testing.TB, psn wire.PSN, responses int) {
	t.Helper()
	r := &dump.Record{Verdict: dump.OK}
	r.Name, r.Time = "cn0 up", p.now
	p.now += 1000
	r.Frame.IPv4.Src, r.Frame.IPv4.Dst = netip.MustParseAddr("10.0.0.1").As4(), netip.MustParseAddr("10.0.0.2").As4()
	r.Frame.BTH = wire.BTH{Opcode: wire.RCReadRequest, DestQP: 0x22, PSN: psn}
	r.Frame.RETH = wire.RETH{VA: 0x1000, RKey: 0xabc, Length: uint32(responses) * 4096}
	if err := p.book.Add(r); err != nil {
		t.Fatal(err)
	}
}

// text is the stories with all their sentences.
func text(told *Told) string {
	var b strings.Builder
	for _, s := range told.Stories {
		fmt.Fprintf(&b, "%s: %s\n", s.Text, s.Outcome)
		for _, x := range s.Because {
			fmt.Fprintf(&b, "  %s\n", x)
		}
	}
	return b.String()
}

func TestStories(t *testing.T) {
	const ack, nak, lost = wire.AckNoCredits, wire.NakPSNSequence, "fault f1 (loss): dropped"
	for name, c := range map[string]struct {
		play func(p *play)
		want string
	}{
		"the program of the switch drops a packet and asks for it": {func(p *play) {
			p.send(t, wire.RCSendOnly, 5)
			p.send(t, wire.RCSendOnly, 6, "dropped by the switch: hundredth (program mine)")
			p.send(t, wire.RCSendOnly, 7, "dropped by the switch: psn gap (program swordbox, rule r1)")
			p.answer(t, wire.RCAck, 6, nak, "a request is missing (program swordbox, rule r1)")
			p.send(t, wire.RCSendOnly, 6)
			p.send(t, wire.RCSendOnly, 7)
			p.answer(t, wire.RCAck, 7, ack)
		}, `SEND 2 (#2, PSN +1): healed
  The request #2 (PSN +1) was lost: dropped by the switch: hundredth (program mine).
  The switch noticed the gap, and asked for PSN +1 by #4 (NAK_PSN_SEQ).
  The answer #4 is not of ms0: a request is missing (program swordbox, rule r1).
  cn0 sent 2 packets again, #5 to #6, also those of one transfer behind it.
  #7 acknowledges it, 5µs after its first packet: healed.
`},
		"the program of the switch refuses a request": {func(p *play) {
			p.send(t, wire.RCSendOnly, 5, "dropped by the switch: moved before restart (program swordbox)")
			p.answer(t, wire.RCAck, 5, wire.NakRemoteOp, "refused (program swordbox)")
		}, `SEND 1 (#1, PSN +0): failed
  The switch refused it by #2 (NAK_REM_OP, PSN +0), 1µs after its first packet: a remote operation error: the responder could not complete the request.
  The answer #2 is not of ms0: refused (program swordbox).
`},
		"responses 2 and 4 of a READ are lost": {func(p *play) {
			p.read(t, 5, 5)
			p.answer(t, wire.RCReadResponseFirst, 5, ack)
			p.answer(t, wire.RCReadResponseMiddle, 6, 0, lost)
			p.answer(t, wire.RCReadResponseMiddle, 7, 0)
			p.answer(t, wire.RCReadResponseMiddle, 8, 0, lost)
			p.answer(t, wire.RCReadResponseLast, 9, ack)
			p.read(t, 6, 4)
			p.answer(t, wire.RCReadResponseFirst, 6, ack)
			p.answer(t, wire.RCReadResponseMiddle, 7, 0)
			p.answer(t, wire.RCReadResponseMiddle, 8, 0)
			p.answer(t, wire.RCReadResponseLast, 9, ack)
		}, "READ 1 (#1, PSN +0, 20480 bytes at 0x1000 with R_Key 0xabc): healed\n" +
			"  Response 2 of 5 (#3, PSN +1) was lost: fault f1 (loss): dropped.\n" +
			"  cn0 got #6, a later response of it, and that to PSN +1 not: an implied NAK.\n" +
			"  cn0 sent it again as #7.\n" +
			"  #11 answers it, 10µs after its first packet: healed.\n"},
		"only the lost response is sent again, as IRN does": {func(p *play) {
			p.read(t, 5, 3)
			p.answer(t, wire.RCReadResponseFirst, 5, ack)
			p.answer(t, wire.RCReadResponseMiddle, 6, 0, lost)
			p.answer(t, wire.RCReadResponseLast, 7, ack)
			p.read(t, 6, 1)
			p.answer(t, wire.RCReadResponseOnly, 6, ack)
			p.send(t, wire.RCSendOnly, 8)
			p.answer(t, wire.RCAck, 8, ack)
		}, "READ 1 (#1, PSN +0, 12288 bytes at 0x1000 with R_Key 0xabc): healed\n" +
			"  Response 2 of 3 (#3, PSN +1) was lost: fault f1 (loss): dropped.\n" +
			"  cn0 got #4, a later response of it, and that to PSN +1 not: an implied NAK.\n" +
			"  cn0 sent it again as #5.\n" +
			"  #6 answers it, 5µs after its first packet: healed.\n"},
		"a lost packet in the middle": {func(p *play) {
			p.send(t, wire.RCWriteOnly, 5)
			p.send(t, wire.RCWriteFirst, 6)
			p.send(t, wire.RCWriteMiddle, 7, lost)
			p.send(t, wire.RCWriteLast, 8)
			p.send(t, wire.RCWriteOnly, 9)
			p.answer(t, wire.RCAck, 6, ack)
			p.answer(t, wire.RCAck, 7, nak)
			p.send(t, wire.RCWriteMiddle, 7)
			p.send(t, wire.RCWriteLast, 8)
			p.send(t, wire.RCWriteOnly, 9)
			p.answer(t, wire.RCAck, 9, ack)
		}, "WRITE 2 (#2 to #4, PSNs +1 to +3 at 0x1180 with R_Key 0xabc): healed\n" +
			"  Packet 2 of 3 (#3, PSN +2) was lost: fault f1 (loss): dropped.\n" +
			"  ms0 noticed the gap, and asked for PSN +2 by #7 (NAK_PSN_SEQ).\n" +
			"  cn0 sent 3 packets again, #8 to #10, also those of one transfer behind it.\n" +
			"  #11 acknowledges it, 9µs after its first packet: healed.\n"},
		"a lost ACK": {func(p *play) {
			p.send(t, wire.RCSendOnly, 5)
			p.answer(t, wire.RCAck, 5, ack, lost)
			p.now += 4_000_000
			p.send(t, wire.RCSendOnly, 5)
			p.answer(t, wire.RCAck, 5, ack)
		}, "SEND 1 (#1, PSN +0): healed\n" +
			"  The answer #2 (RC_ACK, PSN +0) was lost: fault f1 (loss): dropped.\n" +
			"  No answer to PSN +0 came for 4ms, and nothing asked for it: the ACK timer of cn0.\n" +
			"  cn0 sent it again as #3.\n" +
			"  #4 acknowledges it, 4ms after its first packet: healed.\n"},
		"a receive that was late": {func(p *play) {
			p.send(t, wire.RCSendOnly, 5)
			p.answer(t, wire.RCAck, 5, wire.RNRNak|12)
			p.send(t, wire.RCSendOnly, 5)
			p.answer(t, wire.RCAck, 5, ack)
		}, "SEND 1 (#1, PSN +0): healed\n" +
			"  ms0 had no receive posted for it: the RNR NAK #2 asks cn0 to wait before it sends PSN +0 again.\n" +
			"  cn0 sent it again as #3.\n" +
			"  #4 acknowledges it, 3µs after its first packet: healed.\n"},
		"no answer at all": {func(p *play) {
			p.send(t, wire.RCSendOnly, 5)
			for range 11 {
				p.now += 4_000_000
				p.send(t, wire.RCSendOnly, 5, lost)
			}
		}, "SEND 1 (#1, PSN +0): open\n" +
			"  No answer to PSN +0 came for 4ms, and nothing asked for it: the ACK timer of cn0.\n  cn0 sent it again as #2.\n" +
			strings.Join(func() (list []string) {
				for k := 3; k <= 9; k++ {
					list = append(list, fmt.Sprintf("  Then the request #%d (PSN +0) was lost: fault f1 (loss): dropped.\n"+
						"  Then no answer to PSN +0 came for 4ms, and nothing asked for it: the ACK timer of cn0.\n  cn0 sent it again as #%d.\n", k-1, k))
				}
				return list
			}(), "") +
			"  3 retries more of these followed, the last with #12.\n" +
			"  It has no answer until the end of the capture, after 11 retries. When retries run out, the status is transport retry counter exceeded.\n"},
		"a refusal": {func(p *play) {
			p.send(t, wire.RCWriteOnly, 5)
			p.answer(t, wire.RCAck, 5, ack)
			p.send(t, wire.RCWriteOnly, 100)
			p.send(t, wire.RCWriteOnly, 101)
			p.answer(t, wire.RCAck, 100, wire.NakRemoteAccess)
		}, "WRITE 2 (#3, PSN +95 at 0x2900 with R_Key 0xabc): failed\n" +
			"  ms0 refused it by #5 (NAK_REM_ACCESS, PSN +95), 2µs after its first packet: " + meaning(wire.NakRemoteAccess) + ".\n" +
			"  2 other requests with R_Key 0xabc had targets from 0x1140 to 0x297f, and this one is within them: the right to the operation may be missing.\n" +
			"  The NAK carries no reason: while the rack runs, `rdmalab why` has it from the NIC of ms0.\n" +
			"  One transfer behind it in the capture had no effect: the connection has ended.\n"},
		"nothing": {func(p *play) {
			p.send(t, wire.RCReadRequest, 5)
			p.answer(t, wire.RCReadResponseOnly, 5, ack)
			p.send(t, wire.RCSendOnly, 6)
		}, ""},
	} {
		p := &play{}
		c.play(p)
		p.named(t)
		told := Tell(&p.book)
		if got := text(&told); got != c.want {
			t.Errorf("%s: got\n%swant\n%s", name, got, c.want)
		}
	}
}

// Control characters of a capture do not reach the terminal.
func TestControlCharacters(t *testing.T) {
	p := &play{into: nil}
	p.into = func(r *dump.Record) error {
		r.Name = strings.Replace(r.Name, "cn0", "cn0\x1b[31m", 1)
		return p.book.Add(r)
	}
	p.send(t, wire.RCSendOnly, 5)
	p.answer(t, wire.RCAck, 5, wire.AckNoCredits, "fault f1 (loss): dropped", "a\x1b]0;b\a\u009b2J\nc")
	p.now += 4_000_000
	p.send(t, wire.RCSendOnly, 5)
	p.answer(t, wire.RCAck, 5, wire.AckNoCredits)
	told := Tell(&p.book)
	if len(told.Stories) != 1 || !strings.Contains(told.Stories[0].From, "cn0 [31m") || !strings.Contains(text(&told), "a ]0;b  2J c") {
		t.Fatalf("%q", text(&told))
	}
	s := told.Stories[0]
	for _, line := range append([]string{s.From, s.To, s.Text}, s.Because...) {
		if line != dump.OneLine(line) {
			t.Errorf("%q", line)
		}
	}
}

// The captures of a kernel's NIC are told: each loss in them has a story, and captures without one have none.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("../../wire/testdata/golden/*.pcap")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	want := map[string][3]int{ // healed, failed, open
		"loss_faa": {13, 0, 0}, "loss_send": {10, 0, 0}, "loss_write": {7, 0, 0}, "loss_write_imm": {15, 0, 0},
		"nak_atomic_rkey": {0, 1, 0}, "nak_send_toolong": {0, 1, 0}, "nak_write_range": {0, 1, 0}, "nak_write_rkey": {0, 1, 0},
		"no_such_qp": {0, 0, 1}, "rnr_send": {1, 0, 0}, "rnr_write_imm": {1, 0, 0},
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".pcap")
		told := tell(t, data)
		if got := [3]int{told.Healed, told.Failed, told.Open}; got != want[name] {
			t.Errorf("%s: %v, want %v\n%s", name, got, want[name], text(&told))
		}
	}
}

func tell(t testing.TB, data []byte) Told {
	t.Helper()
	var b flows.Book
	d, err := dump.New(io.Discard, dump.Config{Each: b.Add})
	if err != nil {
		t.Fatal(err)
	}
	_ = d.Dump("", bytes.NewReader(data)) // a capture that ends early is told as far as it goes
	return Tell(&b)
}

// No bytes make Tell panic.
func FuzzTell(f *testing.F) {
	for _, name := range []string{"loss_write", "loss_faa", "rnr_send", "nak_write_range"} {
		data, err := os.ReadFile("../../wire/testdata/golden/" + name + ".pcap")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		told := tell(t, data)
		if told.Healed+told.Failed+told.Open > told.Transfers || len(told.Stories) > MaxStories {
			t.Error(told.Healed, told.Failed, told.Open, told.Transfers)
		}
	})
}

// many is the number of packets of the captures in TestManyPackets.
const many = 100_000

// hostile makes captures of many packets that are costly for one step each.
var hostile = map[string]func(testing.TB, *play){
	"one connection": func(t testing.TB, p *play) {
		for i := range many / 2 {
			p.send(t, wire.RCWriteOnly, wire.PSN(0).Add(i))
			p.answer(t, wire.RCAck, wire.PSN(0).Add(i), wire.AckNoCredits)
		}
	},
	"a thousand connections": func(t testing.TB, p *play) {
		for i := range many / 2 {
			q, psn := wire.QPN(i%1000), wire.PSN(i/1000)
			p.add(t, true, 0x1000+q, wire.RCWriteOnly, psn, 0)
			p.add(t, false, 0x5000+q, wire.RCAck, psn, wire.AckNoCredits)
		}
	},
	"a connection for each packet": func(t testing.TB, p *play) {
		for i := range many {
			p.add(t, true, wire.QPN(2+i), wire.RCSendOnly, wire.PSN(0), 0)
		}
	},
	"PSNs that fall": func(t testing.TB, p *play) {
		p.send(t, wire.RCWriteOnly, 0)
		for i := range flows.Far {
			p.send(t, wire.RCWriteOnly, wire.PSN(0).Add(flows.Far-i))
		}
	},
	"a number that is used again and again": func(t testing.TB, p *play) {
		for range many / 4 {
			for psn := range wire.PSN(2) {
				p.msn = uint32(psn) + 1
				p.send(t, wire.RCSendOnly, psn)
				p.answer(t, wire.RCAck, psn, wire.AckNoCredits)
			}
		}
	},
	"all lost on the way": func(t testing.TB, p *play) {
		for i := range many {
			p.send(t, wire.RCSendOnly, wire.PSN(0).Add(i), "lost-loss "+flows.OnTheWay)
		}
	},
	"all sent again": func(t testing.TB, p *play) {
		for range many {
			p.send(t, wire.RCSendOnly, 7)
		}
	},
	"all asked for": func(t testing.TB, p *play) {
		for range many / 2 {
			p.send(t, wire.RCSendOnly, 7)
			p.answer(t, wire.RCAck, 7, wire.NakPSNSequence)
		}
	},
}

// A capture of 100000 packets is told, checked and drawn within two seconds of processor time each, whatever is in it.
func TestManyPackets(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector takes many times as long")
	}
	for name, fill := range hostile {
		within := func(what string, do func(p *play)) {
			p, begin := &play{}, used(t)
			do(p)
			if took := used(t) - begin; took > 2*time.Second {
				t.Errorf("%s: %s in %v", name, what, took)
			}
		}
		within("told", func(p *play) {
			fill(t, p)
			Tell(&p.book)
		})
		within("checked", func(p *play) {
			fill(t, p)
			p.book.Sort()
			conform.Check(&p.book)
		})
		within("drawn", func(p *play) {
			m := ladder.New()
			p.into = m.Add
			fill(t, p)
			if err := m.WriteText(io.Discard); err != nil {
				t.Error(err)
			}
		})
	}
}

// used returns the processor time of this process.
func used(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
