package tracestore

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/swordbox/requester"
)

// A cap holds records back, which are dropped when there is no room, and set on a ring at work it is in
// force at once. WRITEs have the DSCP of the rule.
func TestLimitsOfARing(t *testing.T) {
	const rule = "id=a server=ms0 action=trace store=ms2 records=64 batch=1 combine=0s depth=2"
	b := newBed(t, rule)
	b.connect("10.0.0.3", 1024, bedBytes)
	b.take(0, 1, udp(0))
	b.rules(rule + " cap=1Mbit dscp=46")
	if l := b.m.Links.All[0].Limits(); l != (requester.Limits{Rate: 1_000_000, Burst: 16 << 10, DSCP: 46}) {
		t.Errorf("%+v", l)
	}
	for i := range byte(100) {
		b.take(0, 1, udp(i))
	}
	s, r := b.m.Stats(), b.m.Links.Requested()
	if n := len(b.frames); n != 1+82 || b.frames[0][15] != 0 || b.frames[1][15] != 46<<2 { // 82 frames of 202 bytes are more than 16 KiB
		t.Errorf("%d WRITEs have left, the classes of the first two are %#x, %#x", n, b.frames[0][15], b.frames[1][15])
	}
	if s.Stored != 83 || s.Dropped == 0 || r.Pauses != 1 {
		t.Errorf("%+v; %+v", s, r)
	}
	b.tick(time.Second)
	b.accounted()
	if s := b.m.Stats(); s.Stored != 83+100-82-s.Dropped {
		t.Errorf("%+v", s)
	}
	b.rules(rule)
	before := len(b.frames)
	for i := range byte(100) {
		b.take(0, 1, udp(i))
	}
	if len(b.frames) != before+100 {
		t.Errorf("without a cap %d of 100 WRITEs have left", len(b.frames)-before)
	}
}
