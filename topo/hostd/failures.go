package hostd

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/device"
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

// failureLog writes to the log why queue pairs fail. An end that a program has asked for is no
// failure. The NIC never waits for the log; `rdmalab qps` has what the log lacks.
type failureLog struct {
	log     *slog.Logger
	dev     *device.Device
	waiting chan failure
}

// begin makes the NIC tell which queue pairs fail.
func (l *failureLog) begin() {
	l.waiting = make(chan failure, maxFailuresWaiting)
	l.dev.With(func(e *engine.Engine) {
		e.Hooks.Failed = func(n wire.QPN, o *engine.Owner, end *reason.Note) {
			if end.Orderly() {
				return
			}
			select {
			case l.waiting <- failure{n, ownerOf(o), *end}:
			default:
			}
		}
	})
}

// run writes until stop is closed.
func (l *failureLog) run(stop <-chan struct{}) {
	var since time.Time
	logged := 0
	for {
		select {
		case <-stop:
			l.dev.With(func(e *engine.Engine) { e.Hooks.Failed = nil })
			return
		case f := <-l.waiting:
			if time.Since(since) > failuresPeriod {
				since, logged = time.Now(), 0
			}
			if logged++; logged > maxFailuresLogged {
				continue
			}
			l.log.Warn("queue pair failed", "qpn", fmt.Sprintf("%#x", uint32(f.qpn)), "owner", f.owner.String(), "vendor_err", uint32(f.end.Code), "reason", f.end.String())
			if logged == maxFailuresLogged {
				l.log.Warn("further failures of queue pairs are not logged for a while", "while", failuresPeriod)
			}
		}
	}
}
