package engine

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/sendring"
)

// An entry that is enabled without a WAIT for the request that changes it is fetched before the change,
// if packets to the NIC itself take time; without that time the fault does not show. The request and its
// response take the time once each.
func TestRingLoopback(t *testing.T) {
	const way = 300 * time.Nanosecond
	for _, tc := range []struct {
		loopback time.Duration
		waits    bool
		changed  bool
		ends     clock.Time
	}{
		{0, true, true, 0}, {0, false, true, 0}, {way, true, true, clock.Time(2 * way)}, {way, false, false, clock.Time(2 * way)},
	} {
		r := newRinged(t)
		r.e.cfg.Loopback = tc.loopback
		worker, target := r.add(ringA, sendring.Config{}), r.add(ringB, sendring.Config{Managed: true})
		other := r.entry(sendring.FetchAdd, sendring.Signalled, ringB, dataAt+16, 8)
		other.SwapAdd = uint64(sendring.MaskedFetchAdd) << 24 // an opcode that is refused with these segments
		r.put(ringB, 0, sendring.Entry{Op: sendring.NOP})
		r.put(ringA, 0, other)
		control := sendring.Entry{Op: sendring.NOP}
		if tc.waits {
			control = sendring.Entry{Op: sendring.Wait, Count: 1, Object: r.cq.ID()}
		}
		r.put(ringA, 1, control)
		r.put(ringA, 2, sendring.Entry{Op: sendring.Enable, Count: 1, Object: uint32(target.Num())})
		if err := worker.Doorbell(r.now, 3); err != nil {
			t.Fatal(err)
		}
		q, err := r.cq.Queue()
		if err != nil {
			t.Fatal(err)
		}
		ended := clock.Never
		for at := r.e.Deadline(); at < clock.Time(time.Millisecond); at = r.e.Deadline() {
			r.now = max(r.now, at)
			r.e.Tick(r.now, &r.out)
			if ended == clock.Never && q.Counted() > 0 {
				ended = r.now
			}
		}
		if got := r.e.Counters().RingRefused == 1; got != tc.changed || ended != tc.ends {
			t.Errorf("%+v: changed %t, the ADD completes at %v", tc, got, time.Duration(ended))
		}
	}
}
