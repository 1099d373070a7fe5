package serialize

import (
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Each value of a rule's key slow picks other clients: of three, the first has two requests in flight, the second
// one, and the third none; a queue has marked the second one's packet.
func TestWhoSlowsDown(t *testing.T) {
	for _, c := range []struct {
		slow rules.Slowed
		mark bool
		want [3]int // notifications to each client for 40 of the server
		both int    // notifications in all if they are drawn; then want has the least of each
	}{
		{slow: rules.SlowAll, mark: true, want: [3]int{40, 40, 0}},
		{slow: rules.SlowMarked, mark: true, want: [3]int{0, 40, 0}},
		{slow: rules.SlowMarked, want: [3]int{40, 40, 0}},
		{slow: rules.SlowHeaviest, mark: true, want: [3]int{40, 0, 0}},
		{slow: rules.SlowShare, mark: true, want: [3]int{20, 6, 0}, both: 40},
	} {
		t.Run(c.slow.String(), func(t *testing.T) {
			r, conns := known(t, rigConfig{clients: 3})
			var cnps [3]int
			var sent [][]byte
			r.tap = func(up bool, port int, data []byte) bool {
				if f := parse(data); !up && port < 3 && f.BTH.Opcode == wire.CNP {
					cnps[port]++
					return false
				}
				if !up && port == r.server.port {
					sent = append(sent, append([]byte(nil), data...))
					return false
				}
				return true
			}
			r.m.servers[0].slow = c.slow
			conns[0].post(conns[0].faa(64, 1, 0), conns[0].faa(64, 1, 8))
			r.settle()
			first := len(sent)
			conns[1].post(conns[1].faa(64, 1, 16))
			r.settle()
			if first < 2 || len(sent) <= first {
				t.Fatalf("%d and %d requests were sent", first, len(sent)-first)
			}
			link := r.m.servers[0].links[0]
			for range 40 {
				if c.mark {
					f := parse(sent[len(sent)-1])
					r.m.Marked(r.now, &f)
					r.m.Marked(r.now, &f) // counts once
				}
				f := wire.Frame{Eth: wire.Ethernet{Src: macOf(serverIP), Dst: macOf(switchIP)}}
				f.IPv4 = wire.IPv4{Src: ipOf(serverIP).As4(), Dst: ipOf(switchIP).As4(), TTL: 64}
				f.BTH = wire.BTH{Opcode: wire.CNP, DestQP: link.ownQPN, BECN: true}
				r.launch(true, r.server.port, f.AppendTo(nil), false)
				r.run(60 * time.Microsecond)
			}
			if c.both == 0 && cnps != c.want {
				t.Errorf("%v notifications, want %v", cnps, c.want)
			}
			if c.both != 0 && (cnps[0] < c.want[0] || cnps[1] < c.want[1] || cnps[2] != 0 || cnps[0]+cnps[1] != c.both) {
				t.Errorf("%v notifications, want at least %v and %d in all", cnps, c.want, c.both)
			}
			if got := r.m.received; got != 40 {
				t.Errorf("%d notifications were received", got)
			}
		})
	}
}

// Marks of packets that the switch has not sent, or that have been answered, mean nothing, and no number of them grows anything.
func TestForeignMarks(t *testing.T) {
	r, _ := known(t, rigConfig{clients: 1})
	r.m.servers[0].slow = rules.SlowMarked
	link := r.m.servers[0].links[0]
	f := wire.Frame{}
	f.IPv4 = wire.IPv4{Src: ipOf(switchIP).As4(), Dst: ipOf(serverIP).As4(), TTL: 64}
	for psn := range wire.PSN(1000) {
		f.BTH = wire.BTH{Opcode: wire.RCWriteOnly, DestQP: link.conn.Link().To.DestQP, PSN: psn * 16000}
		r.m.Marked(r.now, &f)
		f.BTH.DestQP++
		r.m.Marked(r.now, &f)
	}
	if n := len(link.slowing.marked); n != 0 {
		t.Errorf("%d clients are marked", n)
	}
	for i := range uint32(2 * maxMarked) {
		link.slowing.mark(r.now, flowID{i, 1})
	}
	if n := len(link.slowing.marked); n != maxMarked || link.slowing.overflow == 0 {
		t.Errorf("%d clients are marked, of too many: %v", n, link.slowing.overflow)
	}
}

// A mark counts for a millisecond, for one notification, and on its connection alone. A notification that comes when all
// marked clients have been told is for the one that was marked last.
func TestMarksExpire(t *testing.T) {
	var w slowing
	const ms = clock.Time(time.Millisecond)
	list := func() (out []uint32) {
		for _, f := range w.marked {
			out = append(out, f.flow)
		}
		return out
	}
	w.mark(1, flowID{1, 1})
	w.mark(2, flowID{2, 1})
	w.mark(3, flowID{1, 1})
	if got := list(); !slices.Equal(got, []uint32{2, 1}) {
		t.Errorf("%v are marked", got)
	}
	if w.expire(2 + ms); !slices.Equal(list(), []uint32{1}) {
		t.Errorf("%v are marked a millisecond later", list())
	}
	if w.forget(); len(list()) != 0 {
		t.Errorf("%v are marked on another connection", list())
	}
}
