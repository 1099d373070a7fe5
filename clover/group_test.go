package clover

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// deaf is a dialer that loses the answers to its requests after the service has executed them.
type deaf struct{ rdmacm.Dialer }

func (d deaf) Dial(qp verbs.QP, to netip.Addr, service string, p rdmacm.Params, private []byte, deadline clock.Time) ([]byte, error) {
	_, _ = d.Dialer.Dial(qp, to, service, p, private, deadline)
	return nil, errors.New("no answer")
}

// counted is a dialer that counts its requests.
type counted struct {
	rdmacm.Dialer
	n *int
}

func (d counted) Dial(qp verbs.QP, to netip.Addr, service string, p rdmacm.Params, private []byte, deadline clock.Time) ([]byte, error) {
	*d.n++
	return d.Dialer.Dial(qp, to, service, p, private, deadline)
}

// A client of a group has a new owner number, because the fence of its former number is in flight.
// That fence must not end the shared connection, which the client now uses under the new number:
// appends of all clients of the group would be answered late or never.
//
// The same holds if the client does not know whether it has joined under a number, because the
// answer was lost.
func TestAFormerNumberEndsNoSharedConnection(t *testing.T) {
	for _, tc := range []struct {
		reconnects bool
		lost       int // Joins whose answer is lost, each under a number of its own
	}{{}, {reconnects: true}, {lost: 1}, {lost: 2}, {reconnects: true, lost: 1}, {lost: mostJoined - 1}} {
		y := newEpochStoryOn(t, plain)
		h := y.rack.Host("cn0")
		h.Go("group", false, func(ctx verbs.Context) {
			rt, m := ctx.Runtime(), h.Manager(ctx)
			g, err := NewGroup(Config{Context: ctx, Manager: m, Meta: y.rack.Host("md0").Addr(), Params: y.params, Batch: 1}, 2)
			if err != nil {
				t.Error(err)
				return
			}
			a, errA := g.Open(inTwoMinutes(rt))
			b, errB := g.Open(inTwoMinutes(rt))
			if err := errors.Join(errA, errB); err != nil {
				t.Error(err)
				return
			}
			err = errors.Join(a.Insert(wornKey, padded("first"), inTwoMinutes(rt)), b.Put(wornKey, padded("second"), inTwoMinutes(rt)))
			s, former := &a.session.servers[0], []uint32{a.session.lease.owner}
			dialer, joins := a.session.cfg.dialer, 0
			for range tc.lost {
				a.session.lease.owner += 100
				a.session.cfg.dialer = deaf{dialer}
				if a.session.join(0, s.conn, inTwoMinutes(rt)) == nil {
					t.Error("a Join without answer has worked")
				}
				former = append(former, a.session.lease.owner)
			}
			a.session.cfg.dialer = counted{dialer, &joins}
			if a.session.lease.owner += 100; tc.reconnects {
				err = errors.Join(err, a.session.fab.Break(s.peer))
			}
			err = errors.Join(err, a.Put(wornKey, padded("third"), inTwoMinutes(rt)))
			if joins != 1 && !tc.reconnects {
				t.Errorf("%+v: %d requests to join, want one for all former numbers", tc, joins)
			}
			conn := s.conn
			for _, id := range former {
				err = errors.Join(err, memservice.Disconnect(ctx, m, y.rack.Host("ms0").Addr(), id, inTwoMinutes(rt)))
			}
			for _, c := range []*Client{a, b} {
				err = errors.Join(err, c.Put(wornKey, padded("next"), inTwoMinutes(rt)))
				if now := c.session.servers[0].conn; now != conn {
					t.Errorf("%+v: the connection was %#x, and it is %#x after the fence of the former numbers", tc, conn, now)
				}
			}
			if err != nil {
				t.Error(err)
			}
		})
		if err := y.rack.Run(); err != nil {
			t.Fatal(err)
		}
	}
}
