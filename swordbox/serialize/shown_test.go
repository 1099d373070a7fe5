package serialize

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/atomiccache"
)

// A flow of which no request has moved is not shown to an operator.
func TestFlowsWithoutMovedRequestsAreNotShown(t *testing.T) {
	r := newRig(t, rigConfig{clients: 1, rules: atomicsRule(1)})
	r.connect(0)
	if flows := r.m.Info(r.now).Flows; len(flows) != 0 {
		t.Errorf("%+v", flows)
	}
}

// An operator who forgets the words is told how many there were. Afterwards the switch knows the
// value of none, and the next atomic is executed by the server.
func TestForgottenWords(t *testing.T) {
	r := newRig(t, rigConfig{clients: 1, rules: atomicsRule(1)})
	c := r.connect(0)
	add := func(off int) {
		c.post(c.faa(off, 1, 0))
		r.run(time.Millisecond)
		c.done(verbs.Success)
	}
	for range 4 {
		add(64)
		add(128)
	}
	known := func() (n int) {
		for _, w := range r.m.Info(r.now).Words {
			if w.State == atomiccache.Known.String() {
				n++
			}
		}
		return n
	}
	if n := known(); n != 2 {
		t.Fatalf("%d words are known", n)
	}
	before := r.m.Stats().Replaced
	if n := r.m.ForgetWords(); n != 2 || known() != 0 {
		t.Errorf("%d words were forgotten, %d are known", n, known())
	}
	if add(64); r.m.Stats().Replaced != before || c.n.word(0) != 4 || r.server.word(64) != 5 {
		t.Errorf("%d atomics were replaced; the word was %d and is %d", r.m.Stats().Replaced-before, c.n.word(0), r.server.word(64))
	}
}

// The state for an operator shows each flow with moved requests, where its last one was sent, and
// each shared connection with the requests in flight on it and their clients.
func TestStateForAnOperator(t *testing.T) {
	r := newRig(t, rigConfig{clients: 2, rules: moveRule(1)})
	first := r.connect(0)
	r.connect(1)  // moves requests as well
	for range 2 { // the first one proves the key for these bytes
		first.post(first.write(0, 0, 256))
		r.run(time.Millisecond)
		first.done(verbs.Success)
	}
	info := r.m.Info(r.now)
	if len(info.Flows) != 2 || len(info.Shared) != 1 {
		t.Fatalf("%d flows, %d shared connections", len(info.Flows), len(info.Shared))
	}
	moved := info.Flows[0].Moved
	for _, f := range info.Flows {
		if f.State != "shared" || f.Outstanding != 0 || f.Server != ipOf(serverIP) || f.Moved == 0 || f.Shift != int(f.Moved) {
			t.Errorf("%+v", f)
		}
	}
	lost := func(up bool, port int, data []byte) bool {
		f := parse(data)
		return up || port != r.server.port || f.BTH.Opcode != wire.RCWriteOnly
	}
	r.tap = lost // the server gets no WRITE
	first.post(first.write(64, 0, 8), first.write(72, 0, 8))
	r.settle()
	info = r.m.Info(r.now)
	s := info.Shared[0]
	if s.Outstanding != 2 || s.Server != ipOf(serverIP) || s.Waits == nil || s.Waits.Client != ipOf(1) || len(s.Waiters) != 1 || s.Waiters[0].Entries != 2 {
		t.Errorf("%+v, waits %+v", s, s.Waits)
	}
	if f := info.Flows[0]; f.Outstanding != 2 || f.Moved != moved+2 {
		t.Errorf("%+v", f)
	}
	r.tap = nil
	r.run(100 * time.Millisecond)
	first.done(verbs.Success, verbs.Success)
	if s := r.m.Info(r.now).Shared[0]; s.Outstanding != 0 || s.Waits != nil || len(s.Waiters) != 0 {
		t.Errorf("%+v", s)
	}
}
