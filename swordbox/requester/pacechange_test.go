package requester

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Requests that wait for the cap are not forgotten when the cap changes, also if none is in flight then.
func TestChangeOfTheCap(t *testing.T) {
	for name, to := range map[string]Limits{"more": {Rate: 10 * MinRate}, "no bound": {}, "another code point": {Rate: MinRate, DSCP: 7}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1, Config{Ring: 8, Waiting: 4})
			r.attach(7, 4)
			r.c.SetLimits(Limits{Rate: MinRate})
			for range 200 {
				r.submit(wire.RCWriteOnly, 1024)
				r.run(100 * time.Microsecond)
			}
			for i := 0; i < 50 && r.c.Requests.Outstanding() > 0; i++ {
				r.run(10 * time.Microsecond)
			}
			if r.c.Requests.Queued() == 0 {
				t.Fatal("nothing waits")
			}
			r.c.SetLimits(to)
			if r.run(time.Second); r.c.Requests.Queued() != 0 || r.c.Requests.Outstanding() != 0 {
				t.Errorf("%d requests wait and %d are in flight a second later", r.c.Requests.Queued(), r.c.Requests.Outstanding())
			}
		})
	}
}
