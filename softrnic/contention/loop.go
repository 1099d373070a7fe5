package contention

import (
	"errors"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// MaxClients is the largest number of clients of one thread.
const MaxClients = 128

// Client makes one operation after the other on a connected queue pair; at most one is in flight.
// Loop calls its methods.
type Client interface {
	QP() verbs.QP
	// Next returns the next work request, which must be signalled; nil if the client has ended. It
	// is called at the beginning and after each completion.
	Next(now clock.Time) *verbs.SendWR
	// Done is called after the work request that Next returned last has completed successfully.
	Done(now clock.Time)
}

// OpError is the error of an operation that completed with an error.
type OpError struct {
	Op verbs.WROpcode
	WC verbs.WC
}

func (e *OpError) Error() string { return fmt.Sprintf("%v failed: %v", e.Op, e.WC.Status) }

// waitStep is the longest single wait for completions. After each of them Loop checks Patience.
const waitStep = 100 * time.Millisecond

// Loop drives the clients of one thread. The send queues of all of them complete into CQ.
type Loop struct {
	Runtime verbs.Runtime
	CQ      verbs.CQ
	// Spin makes the thread poll all the time, as if it had a processor of its own. Otherwise the
	// thread sleeps until a completion arrives.
	Spin bool
	// Patience is the longest time without a completion; after it, Run fails with verbs.ErrTimeout.
	Patience time.Duration
	// Each, if not nil, is called each time that Loop has handled the completions of a poll.
	Each func()

	clients map[uint32]*running // the clients by the numbers of their queue pairs
	wcs     [16]verbs.WC
}

// running is a client with its operation in flight.
type running struct {
	Client
	op verbs.WROpcode
}

// Run posts the first operation of every client. It returns when all clients have ended, or with
// the first error. The error of a failed operation is an *OpError.
func (l *Loop) Run(clients []Client) error {
	l.clients = make(map[uint32]*running, len(clients))
	busy := 0
	for _, c := range clients {
		r := &running{Client: c}
		l.clients[uint32(c.QP().QPN())] = r
		posted, err := l.post(r, l.Runtime.Now())
		if err != nil {
			return err
		}
		busy += posted
	}
	idle := l.Runtime.Now()
	for busy > 0 {
		n, err := l.poll(idle)
		if err != nil {
			return err
		}
		if n == 0 {
			continue
		}
		idle = l.Runtime.Now()
		for i := range l.wcs[:n] {
			wc := &l.wcs[i]
			c := l.clients[uint32(wc.QPN)]
			if wc.Status != verbs.Success {
				return &OpError{Op: c.op, WC: *wc}
			}
			now := l.Runtime.Now()
			c.Done(now)
			posted, err := l.post(c, now)
			if err != nil {
				return err
			}
			busy += posted - 1
		}
		if l.Each != nil {
			l.Each()
		}
	}
	return nil
}

// post posts the next operation of a client. It returns the number of operations that it has
// posted, 0 or 1.
func (l *Loop) post(c *running, now clock.Time) (int, error) {
	wr := c.Next(now)
	if wr == nil {
		return 0, nil
	}
	c.op = wr.Op
	return 1, c.QP().PostSend(*wr)
}

// poll removes completions from CQ. If there is none, it waits, unless Spin is set. idle is the
// time at which the last completion was found. Before the first completion, it is the time at which
// Run had posted all first operations.
func (l *Loop) poll(idle clock.Time) (int, error) {
	n, err := l.CQ.Poll(l.wcs[:])
	if n > 0 || err != nil {
		return n, err
	}
	if l.Runtime.Now().Sub(idle) > l.Patience {
		return 0, fmt.Errorf("no operation was answered for %v: %w", l.Patience, verbs.ErrTimeout)
	}
	if l.Spin {
		return 0, nil
	}
	err = l.CQ.Wait(l.Runtime.Now().Add(waitStep))
	if errors.Is(err, verbs.ErrTimeout) {
		err = nil
	}
	return 0, err
}
