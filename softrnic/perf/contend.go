package perf

import (
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/contention"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// MaxClients is the largest number of clients in a run of contend or locks.
const MaxClients = contention.MaxClients

// planOneWord returns the function that makes the plan of the test contend or locks, in which
// clients share one word; run executes the test. Local memory has 8 bytes for each client, and 8
// further bytes that stay 0: the value that releases a lock.
func planOneWord(run func(*session, *Result) error) func(*Config) plan {
	return func(c *Config) plan {
		return plan{local: atomicSize * (c.Clients + 1), slot: atomicSize, bytes: atomicSize, run: run}
	}
}

// contend runs the test contend. One thread drives cfg.Clients queue pairs, which together do
// cfg.Iters CAS on one word. The word is the last one of the memory that all clients of the host
// share, or of its lock table in device memory.
func (s *session) contend(res *Result) error {
	swaps := contention.Swaps{Window: contention.Window{Until: clock.Never}}
	swaps.More = func(clock.Time) bool {
		return swaps.Posted < s.cfg.Iters && (s.cfg.Cancelled == nil || !s.cfg.Cancelled())
	}
	err := s.onOneWord(res, func(w *sharedWord, i int) contention.Client {
		return swaps.Client(w.qp, w.wr(s, i), s.slot(i), s.pat.base(uint64(i)<<40))
	}, func() { s.Tell("CMP_SWAP", swaps.Done, s.cfg.Iters) })
	res.Swapped = uint64(swaps.Won)
	res.BW = &Bandwidth{Bytes: atomicSize, Iters: swaps.Done, TxDepth: 1, Signaled: 1, MsgRate: float64(swaps.Done) / res.Elapsed.Seconds() / 1e6}
	res.BW.Average = res.BW.MsgRate * 1e6 * atomicSize / (1 << 20)
	return err
}

// sharedWord is the connection of one client to the shared word.
type sharedWord struct {
	qp   verbs.QP
	mem  memservice.Region
	word int // offset of the word in mem
}

// wr returns a work request on the shared word. Its local memory is slot i, 8 bytes. The caller
// sets the operation.
func (w *sharedWord) wr(s *session, i int) verbs.SendWR {
	wr := verbs.SendWR{SGL: s.sges[i : i+1]}
	aim(&wr, w.mem, w.word)
	return wr
}

// onOneWord connects cfg.Clients clients to the shared word (see contend) and runs them until they
// end. It calls the function `client` to make client i, and the function `each` after the
// completions of a poll. It sets res.Elapsed. If cfg.Hold is set, the connections stay until it
// returns.
func (s *session) onOneWord(res *Result, client func(w *sharedWord, i int) contention.Client, each func()) (err error) {
	cq, err := s.ctx.CreateCQ(s.cfg.Clients + 1)
	if err != nil {
		return err
	}
	clients := make([]contention.Client, 0, s.cfg.Clients)
	defer func() {
		for _, c := range clients {
			err = errors.Join(err, c.QP().Destroy())
		}
		err = errors.Join(err, cq.Destroy())
	}()
	for i := range s.cfg.Clients {
		w, err := s.connectWord(cq)
		if err != nil {
			return fmt.Errorf("client %d: %w", i, err)
		}
		clients = append(clients, client(w, i))
	}
	loop := contention.Loop{Runtime: s.rt, CQ: cq, Patience: s.cfg.Patience, Each: each}
	start := s.rt.Now()
	err = loop.Run(clients)
	res.Elapsed = s.rt.Now().Sub(start)
	var failed *contention.OpError
	switch {
	case errors.As(err, &failed):
		return &CompletionError{Op: failed.Op.String(), Msg: failed.WC.ID, Status: failed.WC.Status, Vendor: failed.WC.VendorErr}
	case err == nil && s.cfg.Hold != nil:
		return s.cfg.Hold()
	}
	return err
}

// connectWord makes the queue pair of one client and connects it to the shared word.
func (s *session) connectWord(cq verbs.CQ) (*sharedWord, error) {
	qp, err := s.pd.CreateQP(verbs.QPInit{Type: verbs.RC, SendCQ: cq, RecvCQ: s.rcq, MaxSendWR: 1, MaxRecvWR: 1, MaxSGE: 1})
	if err != nil {
		return nil, err
	}
	mem, err := memservice.DialOwned(s.dialer, qp, s.to, s.cfg.params(), memservice.Claim{}, s.rt.Now().Add(dialPatience))
	if err == nil && s.cfg.Device && mem.Locks.Len < atomicSize {
		err = fmt.Errorf("%s has no lock table on its NIC", s.peer)
	}
	if err != nil {
		return nil, errors.Join(err, qp.Destroy())
	}
	w := &sharedWord{qp: qp, mem: mem.Region}
	if s.cfg.Device {
		w.mem = mem.Locks
	}
	w.word = (w.mem.Len - atomicSize) &^ (atomicSize - 1)
	return w, nil
}
