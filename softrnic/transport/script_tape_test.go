package transport

import (
	"net/netip"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/capture/conform"
	"github.com/rdmalab/rdmalab/softrnic/capture/dump"
	"github.com/rdmalab/rdmalab/softrnic/capture/flows"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// tape has the packets of a script as a capture has them, at a tap beside both sides.
type tape struct{ records []taped }

// taped is a packet.
type taped struct {
	dump.Record
	made bool // by the script, not by a queue pair
}

// add records a packet that `from` sends, or would have sent if it was not made up. It returns the number of the packet.
func (r *tape) add(now clock.Time, from *side, p *wire.Packet, made bool) int {
	rec := taped{made: made}
	rec.Verdict, rec.Time = dump.OK, int64(now)
	f := &rec.Frame
	a, b := netip.MustParseAddr("10.0.0.1").As4(), netip.MustParseAddr("10.0.0.2").As4()
	if f.IPv4.Src, f.IPv4.Dst = a, b; from.name == "b" {
		f.IPv4.Src, f.IPv4.Dst = b, a
	}
	f.Packet = *p
	r.records = append(r.records, rec)
	return len(r.records)
}

// comment says what the wire does to packet n.
func (r *tape) comment(n int, text string) {
	r.records[n-1].Comments = append(r.records[n-1].Comments, text)
}

// check holds the packets against the rules of the protocol, and takes them off the tape. Only packets that the script
// has made up can break one; check returns how many do.
func (r *tape) check(t testing.TB) (named int) {
	t.Helper()
	var b flows.Book
	for i := range r.records {
		if err := b.Add(&r.records[i].Record); err != nil {
			t.Fatal(err)
		}
	}
	b.Sort()
	for _, v := range conform.Check(&b) {
		if r.records[v.Packet.Number-1].made {
			named++
		} else {
			t.Errorf("packet %d, %v, breaks rule %s: %s", v.Packet.Number, &v.Packet.Header, v.Rule.Name, v.Why)
		}
	}
	r.records = nil
	return named
}
