package hostd

import (
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/reason"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

const (
	// maxFailuresWaiting bounds the failures that wait to be logged; further ones are not logged.
	maxFailuresWaiting = 64
	// maxFailuresLogged is how many failures the log gets in a period of failuresPeriod.
	maxFailuresLogged = 60
	failuresPeriod    = time.Minute
)

// failure is a queue pair that has failed, for the log.
type failure struct {
	qpn   wire.QPN
	owner OwnerStatus
	end   reason.Note
}

// logFailures writes to the log why queue pairs fail. An end that a program has asked for is no
// failure. The NIC never waits for the log; `rdmalab qps` has what the log lacks.
func logFailures(h *Host) {
	waiting := make(chan failure, maxFailuresWaiting)
	h.dev.With(func(e *engine.Engine) {
		e.Hooks.Failed = func(n wire.QPN, o *engine.Owner, end *reason.Note) {
			if end.Orderly() {
				return
			}
			select {
			case waiting <- failure{n, ownerOf(o), *end}:
			default:
			}
		}
	})
	h.wg.Go(func() {
		var since time.Time
		logged := 0
		for {
			select {
			case <-h.stop:
				h.dev.With(func(e *engine.Engine) { e.Hooks.Failed = nil })
				return
			case f := <-waiting:
				if time.Since(since) > failuresPeriod {
					since, logged = time.Now(), 0
				}
				if logged++; logged > maxFailuresLogged {
					continue
				}
				h.log.Warn("queue pair failed", "qpn", fmt.Sprintf("%#x", uint32(f.qpn)), "owner", f.owner.String(), "vendor_err", uint32(f.end.Code), "reason", f.end.String())
				if logged == maxFailuresLogged {
					h.log.Warn("further failures of queue pairs are not logged for a while", "while", failuresPeriod)
				}
			}
		}
	})
}
