package cm

import (
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// An initiator that announces hours for an answer, and then falls silent, keeps a connection for
// about a minute and not for hours (IBTA 12.7.27/timeout).
func TestSlowInitiator(t *testing.T) {
	for code := uint8(0); code <= maxCode; code++ {
		a, b := newNode(t, "a", 1, nil), newNode(t, "b", 1, nil)
		if err := b.m.Listen(testService, netip.Prefix{}, 9); err != nil {
			t.Fatal(err)
		}
		if _, err := a.connect(0, testService, 0x100); err != nil {
			t.Fatal(err)
		}
		d := a.out.Tx[0]
		h, m := decode(t, d.MAD[:])
		req := *m.(*mad.REQ)
		req.LocalTimeout, req.MaxCMRetries = code, maxCMRetries
		b.m.Handle(0, Way{d.Remote, d.Local, 0xffff}, mad.Append(nil, h.TID, &req), &b.out)
		if err := b.m.Accept(0, b.out.Events[0].Conn, mad.REP{QPN: 0x200}, &b.out); err != nil {
			t.Fatal(err)
		}
		now, sent := clock.Time(0), 0
		for live, _ := b.m.Conns(); live > 0; live, _ = b.m.Conns() {
			b.out.Reset()
			now = b.m.Deadline()
			b.m.Tick(now, &b.out)
			sent += len(b.out.Tx)
		}
		if now > clock.Time(80*time.Second) || sent < maxCMRetries {
			t.Errorf("code %d: %d more messages in %v", code, sent, now)
		}
	}
}
