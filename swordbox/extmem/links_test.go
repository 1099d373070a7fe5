package extmem

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

// place is a channel that fits connections with at least least bytes of MTU.
type place struct {
	Link
	unneeded   bool
	least      int
	begun, end int
}

func (p *place) Needed() bool { return !p.unneeded }

func (p *place) Fit(s *switchconn.Shared) error {
	if s.MTU < p.least {
		return errors.New("too small")
	}
	return nil
}

func (p *place) Begin(*switchconn.Shared) { p.begun++ }
func (p *place) End(*pipeline.Ctx)        { p.end++ }

// Without a connection a link says why the switch has not made one; with one, or without a reason, what
// it knows itself.
func TestWhyMissing(t *testing.T) {
	k := switchconn.Key{Server: netip.MustParseAddr("10.0.0.1"), Shard: 3}
	links, p := NewLinks[*place](nil), &place{}
	why := "the server does not answer"
	links.Missing = func(of switchconn.Key) string {
		if of != k {
			t.Errorf("asked for %v", of)
		}
		return why
	}
	links.Add(k, p)
	if s := p.Server(true); s.Up || s.Why != why {
		t.Errorf("no connection: %+v", s)
	}
	links.Attach(nil, &switchconn.Shared{Key: k, Generation: 1, OwnQPN: 0x10})
	if s := p.Server(true); !s.Up || s.Why != "" {
		t.Errorf("a connection: %+v", s)
	}
	if links.Fail(nil, p, "silent"); p.Why() != why {
		t.Errorf("failed, and not made again: %q", p.Why())
	}
	if why = ""; p.Why() != "silent" {
		t.Errorf("failed: %q", p.Why())
	}
}

// A connection that does not fit the rules is refused, and comes into use when it is offered again
// after the rules were corrected. One that is in use stays attached while it does not fit.
func TestLinks(t *testing.T) {
	k := switchconn.Key{Server: netip.MustParseAddr("10.0.0.1"), Shard: 3}
	links, p := NewLinks[*place](nil), &place{least: 100}
	links.Add(k, p)
	offer := func(generation uint32, mtu int) bool {
		_, ok := links.Attach(nil, &switchconn.Shared{Key: k, Generation: generation, OwnQPN: 0x10, MTU: mtu})
		return ok
	}
	if offer(1, 50) || p.Usable() || p.Why() != "too small" || p.begun != 0 || links.Mine(0x10) {
		t.Errorf("a connection that does not fit: %+v", p)
	}
	p.least = 10
	if !offer(1, 50) || !p.Usable() || p.Why() != "" || p.begun != 1 || !links.Mine(0x10) {
		t.Errorf("offered again: %+v", p)
	}
	if !offer(1, 50) || p.begun != 1 || p.end != 0 {
		t.Errorf("the connection in use, offered again: %+v", p)
	}
	p.least = 100
	if links.Recheck(); p.Usable() || !p.Connected() || !links.Mine(0x10) || offer(1, 50) {
		t.Errorf("the rules have changed: %+v", p)
	}
	p.least = 10
	if links.Recheck(); !p.Usable() || p.begun != 1 || !p.Server(true).Up || p.Server(false).Up {
		t.Errorf("the rules were corrected: %+v", p)
	}
	if !offer(2, 50) || p.begun != 2 || p.end != 1 {
		t.Errorf("a newer connection: %+v", p)
	}
	if _, ok := links.Detach(nil, k, 1); ok || p.end != 1 {
		t.Error("the end of an old connection ends the new one")
	}
	links.Fail(nil, p, "silent")
	if p.Connected() || p.Why() != "silent" || links.Mine(0x10) {
		t.Errorf("failed: %+v", p)
	}
	if _, ok := links.Detach(nil, k, 2); !ok || p.end != 2 {
		t.Errorf("the end of a failed connection: %+v", p)
	}
	p.unneeded = true
	if offer(3, 50) || !links.Uses(k) {
		t.Error("a connection that no rule needs is taken")
	}
	gone := 0
	if links.Sweep(func(*place) { gone++ }); gone != 1 || links.Uses(k) || offer(4, 50) {
		t.Errorf("%d channels have gone", gone)
	}
}

// The end of a connection is its end for the queue pair as well. A channel without a connection, and
// one that no rule needs, are not judged when the rules change. Only a channel that is not needed
// and has no connection goes.
func TestLinksForget(t *testing.T) {
	k := switchconn.Key{Server: netip.MustParseAddr("10.0.0.1"), Shard: 3}
	links, p := NewLinks[*place](nil), &place{}
	if links.Add(k, p); p.Key() != k {
		t.Errorf("key %v", p.Key())
	}
	s := switchconn.Shared{Key: k, Generation: 1, OwnQPN: 0x10, MTU: 50}
	kept := func() bool {
		links.Sweep(func(*place) { t.Error("the channel goes") })
		return links.Uses(k)
	}
	if _, ok := links.Of(0x10); ok || !kept() {
		t.Error("a channel without a connection")
	}
	if ch, ok := links.Attach(nil, &s); !ok || ch != p || p.Generation() != 1 || p.Server(true) != (Server{k.Server, true, ""}) {
		t.Errorf("%+v", p)
	}
	if ch, ok := links.Of(0x10); !ok || ch != p {
		t.Error("the queue pair is not the channel's")
	}
	p.least, p.unneeded = 100, true
	if links.Recheck(); !p.Usable() || !kept() {
		t.Errorf("a channel that no rule needs: %+v", p)
	}
	p.unneeded = false
	if links.Recheck(); p.Usable() {
		t.Errorf("a channel that does not fit: %+v", p)
	}
	if ch, ok := links.Detach(nil, k, 1); !ok || ch != p || p.Connected() || p.Usable() || links.Mine(0x10) {
		t.Errorf("the end of a connection: %+v", p)
	}
	if links.Recheck(); p.Usable() || p.Why() != "too small" {
		t.Errorf("a channel without a connection: %+v", p)
	}
	p.least = 0
	if links.Recheck(); p.Why() != "too small" {
		t.Errorf("nothing was tried, and the reason is gone: %+v", p)
	}
	s.Generation++
	if _, ok := links.Attach(nil, &s); !ok || !p.Usable() {
		t.Errorf("another connection after one that did not fit at its end: %+v", p)
	}
	if links.Fail(nil, p, "x"); p.Usable() {
		t.Errorf("failed: %+v", p)
	}
	if _, ok := links.Attach(nil, &s); !ok || !p.Usable() {
		t.Errorf("offered again: %+v", p)
	}
	p.unneeded = true
	links.Detach(nil, k, 2)
	if links.Sweep(nil); links.Uses(k) {
		t.Error("a channel that nothing needs stays")
	}
}
