package why

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/reason"
	"github.com/rdmalab/rdmalab/softrnic/stall"
	"github.com/rdmalab/rdmalab/topo/hostd"
)

var start = time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC)

func at(d time.Duration) time.Time { return start.Add(d) }

const ms = time.Millisecond

// qp makes a queue pair of cn0, or its peer of ms0, with notes.
func qp(n, peer uint32, state string, notes ...hostd.NoteStatus) *hostd.QPObject {
	q := &hostd.QPObject{QPStatus: hostd.QPStatus{QPN: n, PeerQPN: peer, Type: "RC", State: state}, Owner: hostd.OwnerStatus{PID: 9, Name: "app"}, Notes: notes}
	for i := range notes {
		switch k := &q.Notes[i]; k.Kind {
		case "failed", "refused", "denied":
			q.LastError = k
		case "ended":
			if !orderly(k) {
				q.LastError = k
			}
		}
	}
	return q
}

var write = &hostd.WorkStatus{Number: 17, ID: 5, Op: "WRITE", Length: 4096, Addr: 0x2000, RKey: 0x12, PSN: 100, Packets: 4}

func failed(code reason.Code, status, because string) hostd.NoteStatus {
	return hostd.NoteStatus{At: at(9 * ms), Since: at(0), Kind: "failed", Code: uint32(code), Status: status, Because: because, Text: "it failed", Work: write, First: 100, Last: 103, Tries: 7, Packet: "packet 1 of 4 of WRITE 17"}
}

func again(code reason.Code, first, last uint32) hostd.NoteStatus {
	return hostd.NoteStatus{At: at(3 * ms), Kind: "sent again", Code: uint32(code), First: first, Last: last, Work: write, Wait: 67 * ms, Text: "sent again"}
}

func heal(first uint32, packet string) hostd.NoteStatus {
	return hostd.NoteStatus{At: at(5 * ms), Since: at(3 * ms), Kind: "healed", First: first, Last: first, Times: 1, Packets: 3, Work: write, Packet: packet, Text: "healed"}
}

func heard(kind string, first, last uint32) hostd.NoteStatus {
	return hostd.NoteStatus{At: at(2 * ms), Kind: kind, First: first, Last: last, Opcode: "RC_WRITE_MIDDLE", Text: kind}
}

var refused = hostd.NoteStatus{
	At: at(9 * ms), Kind: "refused", Code: uint32(reason.RemoteBounds), First: 100, Last: 100, Opcode: "RC_WRITE_ONLY", Answer: "NAK_REM_ACCESS",
	Because: "R_Key 0x12 of region 3 covers 0x1000 to 0x1fff", Text: "refused it",
}

// stories has views, and sentences that must be in the answer, in this order.
var stories = map[string]struct {
	own, peer *hostd.QPObject
	trouble   string
	packets   []Packet
	faults    []Fault
	stalls    []Stall
	want      []string
	no        string // is not in the text
	look      string
}{
	"refused by the peer": {
		own: qp(1, 2, "ERR", failed(reason.PeerAccess, "remote access error", "the peer answered")), peer: qp(2, 1, "ERR", refused),
		want: []string{
			"WRITE 17 (wr_id 0x5): 4096 bytes at 0x2000 with R_Key 0x12 failed 9ms after its post: remote access error, because R_Key 0x12 of region 3 covers 0x1000 to 0x1fff.",
			"ms0 says so: it refused RC_WRITE_ONLY with PSN 100 by NAK_REM_ACCESS.",
			"vendor_err 0x22",
		},
		look: "rdmalab mrs",
	},
	"the switch did not run": {
		own: qp(1, 2, "ERR", failed(reason.Timeout, "transport retry counter exceeded", "no answer came")), peer: qp(2, 1, "RTS"),
		stalls: []Stall{{"ms0", stall.Stall{Began: at(-100 * ms), Took: 99 * ms}}, {"cn0", stall.Stall{Began: at(ms), Took: 2 * ms}}, {"switch", stall.Stall{Began: at(2 * ms), Took: 555 * ms}}, {"ms0", stall.Stall{Began: at(10 * ms), Took: time.Second}}},
		want:   []string{"switch did not run for 555ms, from 03:04:05.002 on"},
		look:   "priority: realtime",
	},
	"refused, and the peer is silent": {
		own:     qp(1, 2, "ERR", failed(reason.PeerAccess, "remote access error", "the peer answered with NAK remote access error")),
		trouble: "it does not answer",
		want:    []string{"because the peer answered with NAK remote access error.", "ms0 could not be asked: it does not answer."},
		look:    "rdmalab qps ms0",
	},
	"refused, and the peer has forgotten": {
		own:  qp(1, 2, "ERR", failed(reason.PeerAccess, "remote access error", "the peer answered with NAK remote access error")),
		want: []string{"ms0 remembers no queue pair 0x2"},
	},
	"the peer's queue pair does not exist": {
		own:  qp(1, 2, "ERR", failed(reason.Timeout, "transport retry counter exceeded", "no answer came")),
		want: []string{"because no answer came.", "It waited for packet 1 of 4 of WRITE 17 (PSN 100) and sent PSNs 100 to 103 again 7 times.", "ms0 has no queue pair 0x2: it drops requests"},
	},
	"the peer has failed": {
		own:  qp(1, 2, "ERR", failed(reason.Timeout, "transport retry counter exceeded", "no answer came")),
		peer: qp(2, 1, "ERR", hostd.NoteStatus{At: at(ms), Kind: "ended", Code: uint32(reason.ByOverrun), Text: "went to ERROR, because it overran", Because: "it overran"}),
		want: []string{"Queue pair 0x2 of ms0 is in ERR: it drops requests", "ms0 says: went to ERROR, because it overran."},
	},
	"the requests are lost": {
		own: qp(1, 2, "ERR", failed(reason.Timeout, "transport retry counter exceeded", "no answer came")), peer: expecting(100),
		faults: []Fault{{Text: "f1 (blackhole)", Hits: 8}},
		want:   []string{"ms0 still expects PSN 100: the requests were lost on the way from cn0.", "has hit 8 packets: f1 (blackhole)."},
		look:   "rdmalab faults",
	},
	"the answers are lost": {
		own: qp(1, 2, "ERR", failed(reason.Timeout, "transport retry counter exceeded", "no answer came")), peer: expecting(104),
		want: []string{"ms0 has executed the requests up to PSN 103: its answers were lost on the way to cn0.", "No fault rule on this way has hit a packet."},
		look: "rdmalab counters switch",
	},
	"a packet in the middle was lost": {
		own: qp(1, 2, "RTS", again(reason.SequenceNak, 101, 103), heal(101, "packet 2 of 4 of WRITE 17")), peer: qp(2, 1, "RTS", heard("missed", 101, 101)),
		packets: []Packet{{At: at(ms), PSN: 101, Opcode: "RC_WRITE_MIDDLE", DestQPN: 2, Link: "cn0 up", Comment: "fault f1: dropped"}},
		want: []string{
			"Packet 2 of 4 of WRITE 17 (PSN 101) was lost on the way from cn0 to ms0.",
			"ms0 noticed it when RC_WRITE_MIDDLE with PSN 102 arrived, and asked for PSN 101 by a sequence NAK.",
			"cn0 sent PSNs 101 to 103 again (1 retry), and 2ms after the first retry, when 3 packets had left again, PSN 101 was acknowledged: healed.",
			"The switch says where: RC_WRITE_MIDDLE with PSN 101 on cn0 up, fault f1: dropped.",
		},
	},
	"two packets were lost": {
		own: qp(1, 2, "RTS", again(reason.SequenceNak, 101, 103), heal(101, "packet 2 of 4 of WRITE 17")), peer: qp(2, 1, "RTS", heard("missed", 101, 102)),
		want: []string{"PSNs 101 to 102 were lost", "with PSN 103 arrived"},
	},
	"the last packet was lost": {
		own: qp(1, 2, "RTS", again(reason.Timeout, 100, 103), heal(100, "packet 1 of 4 of WRITE 17")), peer: qp(2, 1, "RTS", heard("repeated", 100, 102)),
		want: []string{
			"No answer to packet 1 of 4 of WRITE 17 (PSN 100) came within the ACK timeout of 67ms.",
			"ms0 had executed what came before PSN 103: packet 4 of 4 of WRITE 17 (PSN 103) was lost on the way from cn0",
			"healed.",
		},
	},
	"the ACK was lost": {
		own: qp(1, 2, "RTS", again(reason.Timeout, 100, 103), heal(100, "packet 1 of 4 of WRITE 17")), peer: qp(2, 1, "RTS", heard("repeated", 100, 103)),
		want: []string{"ms0 had executed it already (PSNs up to 103 arrived twice): its answer was lost on the way to cn0."},
	},
	"all packets were lost": {
		own: qp(1, 2, "RTS", again(reason.Timeout, 100, 103), heal(100, "packet 1 of 4 of WRITE 17")), peer: qp(2, 1, "RTS"),
		want: []string{"ms0 had received nothing from PSN 100 on: packet 1 of 4 of WRITE 17 (PSN 100) was lost on the way from cn0."},
	},
	"a response was lost": {
		own: qp(1, 2, "RTS", again(reason.ImpliedNak, 101, 103), heal(101, "response 2 of 4 of READ 3")), peer: qp(2, 1, "RTS", heard("repeated", 101, 103)),
		want: []string{"Response 2 of 4 of READ 3 (PSN 101) was lost on the way from ms0 to cn0: a later response arrived before it"},
	},
	"a READ's request was lost": {
		own: qp(1, 2, "RTS", again(reason.Timeout, 100, 100), heal(100, "response 1 of 1 of READ 3")), peer: qp(2, 1, "RTS"),
		faults: []Fault{{"f1 (drop --link cn0 --dir down)", 1, "cn0", fault.Down}, {"f2 (drop --link cn0 --dir up)", 2, "cn0", fault.Up}},
		want:   []string{"the request for response 1 of 1 of READ 3 (PSN 100) was lost on the way from cn0", "has hit 2 packets: f2"},
		no:     "f1",
	},
	"a response was lost, and requests before it": {
		own: qp(1, 2, "RTS", again(reason.ImpliedNak, 101, 103), heal(101, "response 2 of 4 of READ 3")), peer: qp(2, 1, "RTS"),
		faults: []Fault{{"f1 (drop --link ms0 --dir down)", 1, "ms0", fault.Down}, {"f2 (drop --link leaf0-spine0 --dir up)", 2, "leaf0-spine0", fault.Up}},
		want:   []string{"has hit 2 packets: f2"},
		no:     "f1",
	},
	"no receive": {
		own: qp(1, 2, "RTS", again(reason.NotReady, 100, 100), heal(100, "packet 1 of 1 of SEND 4")), peer: qp(2, 1, "RTS", heard("not ready", 100, 100)),
		want: []string{"Nothing was lost: ms0 had no receive posted for packet 1 of 1 of SEND 4 (PSN 100)"},
		look: "rdmalab qps ms0",
	},
	"the responder's side": {
		own: qp(2, 1, "ERR", refused), peer: qp(1, 2, "ERR", failed(reason.PeerAccess, "remote access error", "x")),
		want: []string{"cn0 refused RC_WRITE_ONLY with PSN 100 of ms0, because R_Key 0x12", "`rdmalab why ms0 0x1`"},
	},
	"a responder that missed packets": {
		own: qp(2, 1, "RTS", heard("missed", 101, 101)), peer: qp(1, 2, "RTS"),
		want: []string{"As responder, cn0 notes: missed.", "`rdmalab why ms0 0x1`"},
	},
	"still waiting": {
		own: qp(1, 2, "RTS", again(reason.Timeout, 100, 103)), peer: expecting(100),
		want: []string{"Not settled yet: sent again.", "ms0 still expects PSN 100"},
	},
	"a refused verb": {
		own:  qp(1, 0, "INIT", hostd.NoteStatus{At: at(0), Kind: "denied", Because: "modify QP: too large", Text: "refused a verb"}),
		want: []string{"cn0 refused a verb: modify QP: too large."},
	},
	"nothing": {own: qp(1, 2, "RTS"), peer: qp(2, 1, "RTS"), want: []string{"Nothing went wrong"}},
	"PSNs wrap": {
		own: qp(1, 2, "RTS", again(reason.Timeout, 0xffffff, 1), heal(0xffffff, "the packet")), peer: qp(2, 1, "RTS", heard("repeated", 0xffffff, 0)),
		want: []string{"ms0 had executed what came before PSN 1: PSN 1 was lost"},
	},
}

func expecting(psn uint32) *hostd.QPObject {
	q := qp(2, 1, "RTS")
	q.RecvPSN = psn
	return q
}

func TestStories(t *testing.T) {
	for name, c := range stories {
		t.Run(name, func(t *testing.T) {
			s := Tell(View{Own: Side{Host: "cn0", QP: c.own}, Peer: Side{Host: "ms0", QP: c.peer, Trouble: c.trouble}, Packets: c.packets, Faults: c.faults, Stalls: c.stalls})
			text := strings.Join(s.Because, "\n")
			rest := text
			for _, want := range c.want {
				_, after, ok := strings.Cut(rest, want)
				if !ok {
					t.Fatalf("no %q where it should be in\n%s", want, text)
				}
				rest = after
			}
			if c.no != "" && strings.Contains(text, c.no) {
				t.Errorf("%q is in\n%s", c.no, text)
			}
			if !strings.Contains(strings.Join(s.Look, "\n"), c.look) {
				t.Errorf("look at %q, want %q", s.Look, c.look)
			}
			if !slices.IsSortedFunc(s.Events, func(a, b Event) int { return a.At.Compare(b.At) }) {
				t.Errorf("events out of order: %v", s.Events)
			}
		})
	}
}

// What causes others comes first among events of one time: a post, then the peer's refusal, then the
// failure.
func TestOrderOfEvents(t *testing.T) {
	f := failed(reason.PeerAccess, "remote access error", "x")
	f.Since = f.At
	s := Tell(View{Own: Side{Host: "cn0", QP: qp(1, 2, "ERR", f)}, Peer: Side{Host: "ms0", QP: qp(2, 1, "ERR", refused)}})
	var got []string
	for _, e := range s.Events {
		got = append(got, e.Host+" "+e.Text)
	}
	if want := []string{"cn0 posts " + work(write), "ms0 refused it", "cn0 it failed"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if want := "cn0: queue pair 0x1 (RC, of app/9), connected to queue pair 0x2 of ms0; now in ERR"; s.Title != want {
		t.Errorf("%q", s.Title)
	}
}

func TestChoose(t *testing.T) {
	old := qp(7, 2, "ERR", heard("missed", 1, 1))
	old.Gone = true
	fresh := qp(7, 3, "RTS")
	ended := qp(8, 4, "ERR", hostd.NoteStatus{At: at(time.Hour), Kind: "ended", Code: uint32(reason.ByProgram)})
	list := []hostd.QPObject{*old, *fresh, *ended}
	for n, want := range map[uint32]*hostd.QPObject{7: &list[1], 8: &list[2], 0: &list[0], 9: nil} {
		if got := Choose(list, n); got != want {
			t.Errorf("queue pair %d: %+v", n, got)
		}
	}
	if p := PeerOf(list, &hostd.QPObject{QPStatus: hostd.QPStatus{QPN: 2, PeerQPN: 7}}); p != &list[0] {
		t.Errorf("the peer is %+v", p)
	}
}
