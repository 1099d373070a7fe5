package scenario

import (
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// traffic is what a switch does something with, in a scenario whose oracle knows when all of it has ended.
type traffic struct {
	begin func()       // starts it
	check func() error // compares the switch's counters with each other, and reports what the oracle has seen
	ended func() bool  // it has ended, and no fault is active
	empty func() bool  // none of it is in the switch
	so    fmt.Stringer // how far it has come
	last  string       // what has ended last
}

// watchTraffic starts an application that starts the traffic when the switch has its connections, and checks the
// counters at intervals until all has ended and nothing is in the switch.
func (l *lenders) watchTraffic(t *traffic) {
	l.env.client("ms0", "watcher", func(ctx verbs.Context) error {
		rt := ctx.Runtime()
		begun, quiet := false, clock.Time(0)
		for {
			rt.Sleep(bufferEvery)
			if !begun {
				begun = true
				t.begin()
				continue
			}
			if l.down {
				continue
			}
			if err := t.check(); err != nil {
				return err
			}
			switch {
			case !t.ended():
				if rt.Now() > clock.Time(bufferQuiet) {
					return fmt.Errorf("%v after %v: %v", t.so, bufferQuiet, l.counts())
				}
			case quiet == 0:
				quiet = rt.Now()
			case t.empty() && rt.Now().Sub(quiet) > 10*bufferEvery:
				return nil
			case rt.Now().Sub(quiet) > bufferQuiet:
				return fmt.Errorf("%v after the last %s: %v", bufferQuiet, t.last, l.counts())
			}
		}
	})
}
