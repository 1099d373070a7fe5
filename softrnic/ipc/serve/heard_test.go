package serve

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// listeners is a pump with n ports. Port i owns the completion queue i, the shared receive queue
// 10 + i and the queue pair 20 + i.
func listeners(n int) *pump {
	s := &pump{qps: map[wire.QPN]*port{}, cqs: map[uint32]*port{}, srqs: map[uint32]*port{}}
	for i := range n {
		p := &port{c: &client{link: newLink(nil)}}
		s.ports = append(s.ports, p)
		s.cqs[uint32(i)], s.srqs[uint32(10+i)], s.qps[wire.QPN(20+i)] = p, p, p
	}
	return s
}

// told returns how many messages wait for each port.
func (s *pump) told() (n []int) {
	for _, p := range s.ports {
		n = append(n, len(p.c.out))
	}
	return n
}

// An event of an object goes to the program that owns it, one of the NIC to all programs and to the
// daemon, and one of an object of the daemon to the daemon alone.
func TestWhoHearsAnEvent(t *testing.T) {
	for name, c := range map[string]struct {
		ev    verbs.AsyncEvent
		taken bool
		want  [2]int
	}{
		"completion queue":     {verbs.AsyncEvent{Kind: verbs.EventCQErr, CQ: 1}, true, [2]int{0, 1}},
		"shared receive queue": {verbs.AsyncEvent{Kind: verbs.EventSRQLimit, SRQ: 10}, true, [2]int{1, 0}},
		"queue pair":           {verbs.AsyncEvent{Kind: verbs.EventQPFatal, QPN: 21}, true, [2]int{0, 1}},
		"the daemon's":         {verbs.AsyncEvent{Kind: verbs.EventQPFatal, QPN: 99}, false, [2]int{}},
		"port":                 {verbs.AsyncEvent{Kind: verbs.EventPortErr}, false, [2]int{1, 1}},
		"port again":           {verbs.AsyncEvent{Kind: verbs.EventPortActive}, false, [2]int{1, 1}},
		"NIC":                  {verbs.AsyncEvent{Kind: verbs.EventDeviceFatal}, false, [2]int{1, 1}},
	} {
		s := listeners(2)
		if taken := s.hear(c.ev); taken != c.taken {
			t.Errorf("%s: taken: %v", name, taken)
		}
		if n := s.told(); n[0]+n[1] != 0 {
			t.Errorf("%s: told before the pump's step: %v", name, n)
		}
		s.tell()
		s.tell() // nothing is told twice
		if n := [2]int(s.told()); n != c.want {
			t.Errorf("%s: %v messages, want %v", name, n, c.want)
		}
	}
}

// A program hears only of what happened while it was attached, also if the pump tells it later.
func TestEventsAroundTheLifeOfAProgram(t *testing.T) {
	s := listeners(3)
	late, last := s.ports[2], s.ports[0]
	s.ports = s.ports[:2]
	s.hear(verbs.AsyncEvent{Kind: verbs.EventPortErr})
	s.hear(verbs.AsyncEvent{Kind: verbs.EventQPFatal, QPN: 20})
	s.ports = append(s.ports, late)
	s.remove(last)
	s.hear(verbs.AsyncEvent{Kind: verbs.EventQPFatal, QPN: 20}) // the number has no owner
	s.tell()
	if got := len(last.c.out); got != 2 {
		t.Errorf("the program that has ended was told %d events, want 2", got)
	}
	if n := s.told(); n[0] != 1 || n[1] != 0 {
		t.Errorf("the others were told %v events, want one and none", n)
	}
	for n, p := range s.qps {
		if p == last || s.cqs[0] != nil || s.srqs[10] != nil {
			t.Errorf("number %d belongs to a program that has ended", n)
		}
	}
	if len(s.qps) != 2 || len(s.cqs) != 2 || len(s.srqs) != 2 {
		t.Errorf("the others own %d, %d and %d numbers", len(s.qps), len(s.cqs), len(s.srqs))
	}
}

// A target of XRC with many handles takes no room from the events of other programs.
func TestEventsOfManyHandles(t *testing.T) {
	s := listeners(2)
	s.targets = make(map[wire.QPN][]targetHandle)
	for range 2 * maxHeard {
		s.targets[77] = append(s.targets[77], targetHandle{port: s.ports[0], handle: new(owner)})
	}
	s.ports[0].c.prog = new(program)
	if !s.hear(verbs.AsyncEvent{Kind: verbs.EventQPFatal, QPN: 77}) || !s.hear(verbs.AsyncEvent{Kind: verbs.EventQPFatal, QPN: 21}) {
		t.Fatal("an event is not taken")
	}
	s.tell()
	if n := len(s.ports[1].c.out); n != 1 || s.ports[0].lost != 0 || s.ports[1].lost != 0 {
		t.Errorf("the other program was told %d events; %d and %d lost", n, s.ports[0].lost, s.ports[1].lost)
	}
}

// Events beyond the bound, and those for which a program has left no room, are lost and counted.
func TestEventsAreBounded(t *testing.T) {
	s := listeners(2)
	for range maxHeard {
		s.hear(verbs.AsyncEvent{Kind: verbs.EventQPFatal, QPN: 20})
	}
	if len(s.heard) != maxHeard || s.ports[0].lost != 0 {
		t.Fatalf("%d events, %d lost", len(s.heard), s.ports[0].lost)
	}
	s.hear(verbs.AsyncEvent{Kind: verbs.EventQPFatal, QPN: 20})
	s.hear(verbs.AsyncEvent{Kind: verbs.EventPortErr})
	if len(s.heard) != maxHeard || s.ports[0].lost != 2 || s.ports[1].lost != 1 {
		t.Errorf("%d events; %d and %d lost, want 2 and 1", len(s.heard), s.ports[0].lost, s.ports[1].lost)
	}
	s.tell()
	if p := s.ports[0]; len(p.c.out) != maxOutgoing || p.lost != 2+maxHeard-maxOutgoing {
		t.Errorf("%d messages wait, %d events are lost", len(p.c.out), p.lost)
	}
	none := listeners(0)
	if none.hear(verbs.AsyncEvent{Kind: verbs.EventPortErr}); len(none.heard) != 0 {
		t.Error("an event for no program is kept")
	}
}

// A number belongs to its latest owner: one that gives it up later than another has got it changes
// nothing.
func TestOwnersOfNumbers(t *testing.T) {
	a, b := new(port), new(port)
	owners := map[uint32]*port{1: a, 2: b}
	disown(owners, 1, b)
	disown(owners, 2, b)
	if len(owners) != 1 || owners[1] != a {
		t.Errorf("%v", owners)
	}
}

// Asynchronous events that an unmodified program does not read are lost and counted once maxPending
// of them wait. Before the program has a descriptor for them, they are not counted.
func TestLostEventsOfAnUnmodifiedProgram(t *testing.T) {
	s := listeners(1)
	p := s.ports[0]
	p.c.prog = &program{c: p.c}
	ev := verbs.AsyncEvent{Kind: verbs.EventPortErr}
	if p.event(ev); p.lost != 0 {
		t.Errorf("%d events are lost without a descriptor", p.lost)
	}
	fd, err := p.c.prog.async.open()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	defer p.c.prog.async.close()
	for len(p.c.prog.async.pending) < maxPending {
		p.event(ev)
	}
	if p.lost != 0 {
		t.Fatalf("%d events are lost, and %d wait", p.lost, maxPending)
	}
	for range 3 {
		p.event(ev)
	}
	if p.lost != 3 {
		t.Errorf("%d events are lost, want 3", p.lost)
	}
}

// The same holds for events of completions, and the queue's count of sent events has none of those
// that are lost.
func TestLostEventsOfACompletionChannel(t *testing.T) {
	p := listeners(1).ports[0]
	c := &programCQ{channel: new(eventQueue)}
	fd, err := c.channel.open()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	defer c.channel.close()
	sent := uint32(0)
	for ; len(c.channel.pending) < maxPending; sent++ {
		c.tell(p)
	}
	if c.told != sent || p.lost != 0 {
		t.Fatalf("%d of %d events sent, %d lost", c.told, sent, p.lost)
	}
	for range 3 {
		c.tell(p)
	}
	if c.told != sent || p.lost != 3 {
		t.Errorf("%d events sent, want %d; %d lost, want 3", c.told, sent, p.lost)
	}
}
