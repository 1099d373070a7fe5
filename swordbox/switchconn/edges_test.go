package switchconn

import (
	"net/netip"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cm"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// A connection is adopted with each of its numbers at its bounds, and not behind them.
func TestBoundsOfAnAdoptedConnection(t *testing.T) {
	for what, c := range map[string]struct {
		change func(s *Shared)
		ok     bool
	}{
		"as it is":                  {func(*Shared) {}, true},
		"no server":                 {func(s *Shared) { s.Server = netip.Addr{} }, false},
		"a negative shard":          {func(s *Shared) { s.Shard = -1 }, false},
		"the server's QP 1":         {func(s *Shared) { s.ServerQPN = 1 }, false},
		"the server's QP 2":         {func(s *Shared) { s.ServerQPN = 2 }, true},
		"the server's last QP":      {func(s *Shared) { s.ServerQPN = lastQPN }, true},
		"the server's multicast QP": {func(s *Shared) { s.ServerQPN = lastQPN + 1 }, false},
		"the switch's QP 1":         {func(s *Shared) { s.OwnQPN = 1 }, false},
		"the switch's QP 2":         {func(s *Shared) { s.OwnQPN = 2 }, true},
		"the switch's last QP":      {func(s *Shared) { s.OwnQPN = lastQPN }, true},
		"the switch's multicast QP": {func(s *Shared) { s.OwnQPN = lastQPN + 1 }, false},
		"the largest PSNs":          {func(s *Shared) { s.SendPSN, s.RecvPSN = 1<<24-1, 1<<24-1 }, true},
		"a longer PSN to send":      {func(s *Shared) { s.SendPSN = 1 << 24 }, false},
		"a longer PSN to receive":   {func(s *Shared) { s.RecvPSN = 1 << 24 }, false},
		"an MTU of 1000":            {func(s *Shared) { s.MTU = 1000 }, false},
		"an MTU of 4096":            {func(s *Shared) { s.MTU = 4096 }, true},
		"no depth":                  {func(s *Shared) { s.Depth = 0 }, true},
		"a negative depth":          {func(s *Shared) { s.Depth = -1 }, false},
		"the largest depth":         {func(s *Shared) { s.Depth = 255 }, true},
		"a larger depth":            {func(s *Shared) { s.Depth = 256 }, false},
	} {
		s := Shared{Key: Key{Server: server}, ServerQPN: 5, OwnQPN: 6, MTU: 1024, Depth: 16}
		c.change(&s)
		if err := s.check(); (err == nil) != c.ok {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// The name of a state is read again; another name is none.
func TestNamesOfStates(t *testing.T) {
	for i := range states {
		text, err := State(i).MarshalText()
		s := State(states)
		if err != nil || s.UnmarshalText(text) != nil || s != State(i) {
			t.Errorf("state %d is %q, read as %v", i, text, s)
		}
	}
	s := Up
	if s.UnmarshalText([]byte("sideways")) == nil || s != Up {
		t.Errorf("an unknown name is %v", s)
	}
}

// A REQ asks for as many READs as the target wants, at most for what its byte can say.
func TestDepthOfARequest(t *testing.T) {
	d := newDialer(t)
	d.Want(Key{Server: server}, Target{Service: "memory"})
	for depth, want := range map[int]uint8{1: 1, 254: 254, 255: 255, 256: 255, 1000: 255} {
		r, err := d.request(d.links[0], &Shared{Depth: depth})
		if err != nil || r.ResponderResources != want || r.InitiatorDepth != want {
			t.Errorf("depth %d: %d and %d, %v", depth, r.ResponderResources, r.InitiatorDepth, err)
		}
	}
}

// An attempt ends when the server's MAC address is not known, and when the server does not answer. Its queue pair
// is free again, the reason is shown, and the next attempt comes after a pause.
func TestAttemptsThatFail(t *testing.T) {
	k := Key{Server: server}
	for what, fail := range map[string]func(d *Dialer){
		"no MAC address":             func(d *Dialer) { d.cfg.Resolve = func(netip.Addr) (wire.MAC, bool) { return wire.MAC{}, false } },
		"the server does not answer": func(*Dialer) {},
	} {
		d := newDialer(t)
		d.Want(k, Target{Service: "memory"})
		fail(d)
		l := d.byKey[k]
		if what == "no MAC address" {
			d.dial(at(100), l)
		} else {
			l.state, l.owner, l.conn, l.shared.OwnQPN = Dialing, 3, 4, 70
			d.byConn[3], d.byQPN[70] = l, l
			d.event(at(100), cm.Event{Kind: cm.EventUnreachable, Owner: 3, Conn: 4})
		}
		i := d.List()[0]
		if i.State != Waiting || i.Error == "" || i.Attempts != 1 || i.Next != clock.Time(100).Add(minBackOff) || len(d.byQPN) != 0 || len(d.byConn) != 0 || d.Stats().Failed != 1 {
			t.Errorf("%s: %+v, %d queue pairs, %d attempts in work", what, i, len(d.byQPN), len(d.byConn))
		}
		if next := d.Deadline(); next != i.Next {
			t.Errorf("%s: the next deadline is %v, not %v", what, next, i.Next)
		}
	}
}

// The queue pair of a connection that ends is free, unless another connection has the number by now.
func TestNumberOfAnEndedConnection(t *testing.T) {
	d := newDialer(t)
	one, other := new(link), new(link)
	one.owner = 5
	one.shared.OwnQPN = 70
	d.byQPN[70], d.byConn[5] = one, one
	if d.release(one); len(d.byQPN) != 0 || len(d.byConn) != 0 || one.owner != 0 || one.conn != 0 {
		t.Errorf("%v, %v", d.byQPN, d.byConn)
	}
	d.byQPN[70] = other
	if d.release(one); d.byQPN[70] != other {
		t.Error("another connection has lost its number")
	}
}

// Only connections that are to be made have a deadline of their own.
func TestDeadlinesOfLinks(t *testing.T) {
	for what, c := range map[string]struct {
		l    link
		want bool
	}{
		"wanted":           {link{want: true}, true},
		"not wanted":       {link{}, false},
		"adopted":          {link{want: true, adopted: true}, false},
		"up":               {link{want: true, state: Up}, false},
		"an attempt works": {link{want: true, state: Dialing}, false},
	} {
		d := newDialer(t)
		c.l.next = 9
		d.links = []*link{&c.l}
		if got := d.Deadline() == 9; got != c.want {
			t.Errorf("%s: deadline %v", what, d.Deadline())
		}
	}
}

// A connection that the server has ended is made again after a pause, or forgotten if it is not wanted any more.
func TestConnectionThatTheServerEnds(t *testing.T) {
	for _, wanted := range []bool{true, false} {
		d := newDialer(t)
		k := Key{Server: server}
		d.Want(k, Target{Service: "memory"})
		l := d.byKey[k]
		d.up(l, Shared{Key: k, OwnQPN: 70, Generation: 1})
		l.state, l.want, l.slot = Up, wanted, 0
		d.lost(at(50), l, "gone")
		if (d.byKey[k] == l) != wanted || len(d.byQPN) != 0 || d.Stats().Lost != 1 {
			t.Errorf("wanted %v: known %v, %d queue pairs", wanted, d.byKey[k] == l, len(d.byQPN))
		}
		if wanted && (l.state != Waiting || l.err != "gone" || l.next != clock.Time(50).Add(minBackOff)) {
			t.Errorf("%+v", l)
		}
	}
}
